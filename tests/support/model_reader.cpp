#include "tests/support/model_reader.h"

#include <utility>

#include "layers/pass/host_values.h"
#include "tests/support/test_device.h"

namespace quire::test {

namespace {

constexpr double kAuxiliary = 0.3;

}  // namespace

ModelReader::ModelReader(const ModelConfig& config, int64_t vocabulary, int64_t rows, int64_t length)
    : network_(store_, config, vocabulary, DType::f64),
      state_(network_.declared.state, rows, length, DType::f64, test_device()) {
  store_.allocate(DType::f64, test_device(), 1);
}

LossTerms ModelReader::forward(Tape& tape, const Batch& batch, bool write) {
  state_.begin_step(batch);
  const StateView view = state_.view(0, batch.rows);
  return network_.model.loss({.tape = tape,
                              .batch = batch,
                              .state = view,
                              .key = RandomKey::of(5, 1),
                              .training = training,
                              .write_state = write,
                              .retrieved = retrieved,
                              .loss_seeds = std::vector<double>(network_.declared.losses.size(), kAuxiliary)});
}

void ModelReader::step(const Batch& batch, DocumentNll* nll) {
  Tape tape(false);
  const std::vector<double> values = forward(tape, batch, true).nll.to_vector<double>();
  state_.commit();
  if (nll == nullptr) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (batch.loss_mask[i] != 0) (*nll)[{batch.document[i], batch.position[i]}] = values[i];
  }
}

DocumentNll ModelReader::read(const std::vector<Batch>& batches) {
  DocumentNll nll;
  for (const Batch& batch : batches) step(batch, &nll);
  return nll;
}

std::vector<double> ModelReader::nll(const Batch& batch) {
  Tape tape(false);
  return forward(tape, batch, false).nll.to_vector<double>();
}

std::map<std::string, std::vector<double>> ModelReader::carried() {
  // Numbers of types that nothing computes with are compared as bytes.
  const auto numbers = [](const Tensor& tensor) {
    if (is_floating(tensor.dtype())) return values_on_host(tensor);
    std::vector<uint8_t> bytes(static_cast<size_t>(tensor.bytes()));
    tensor.download(bytes.data());
    return std::vector<double>(bytes.begin(), bytes.end());
  };
  const StateLayout& layout = network_.declared.state;
  std::map<std::string, std::vector<double>> all;
  for (int64_t row = 0; row < state_.rows(); ++row) {
    const StateView view = state_.view(row, row + 1);
    const std::string suffix = " of row " + std::to_string(row);
    for (size_t i = 0; i < layout.registers().size(); ++i) {
      all[layout.registers()[i].name + suffix] = numbers(view.current({static_cast<int>(i)}));
    }
    for (size_t i = 0; i < layout.logs().size(); ++i) {
      const StateLayout::Log& log = layout.logs()[i];
      const std::vector<int64_t> first{0}, count = view.lengths(log.group);
      const Tensor entries = view.gather({static_cast<int>(i), log.group}, count[0], first, count);
      all[log.name + suffix] = numbers(entries);
    }
  }
  return all;
}

double ModelReader::loss(const Batch& batch) {
  Tape tape(false);
  // Auxiliary losses are in the gradients with their weight in each layer: the suite's configurations give them 1.
  const LossTerms terms = forward(tape, batch, false);
  double loss = terms.terms[0].sum.value().to_vector<double>()[0];
  for (size_t i = 1; i < terms.terms.size(); ++i) {
    const bool of_targets =
        static_cast<int64_t>(i) > network_.declared.losses.size();  // inserted tokens weigh as much as others
    loss += (of_targets ? 1 : kAuxiliary) * terms.terms[i].sum.value().to_vector<double>()[0];
  }
  return loss;
}

std::vector<std::vector<double>> ModelReader::learned(const Batch& batch, bool with_backward) {
  for (Learner* learner : network_.declared.learners) {
    learner->begin_step({.key = RandomKey::of(5, 1), .update = 2, .rows = batch.rows, .length = batch.length});
  }
  const bool before = std::exchange(training, true);
  {
    Tape tape(with_backward);
    const LossTerms terms = forward(tape, batch, true);
    if (with_backward) tape.backward({{terms.terms[0].sum, 1.0}});
  }
  training = before;
  std::vector<std::vector<double>> all;
  for (const Learner* learner : network_.declared.learners) {
    for (const Tensor& sum : learner->sums()) all.push_back(values_on_host(sum));
  }
  return all;
}

Tensor ModelReader::next_logits(const Batch& batch, int64_t at) {
  Tape tape(false);
  state_.begin_step(batch);
  const StateView view = state_.view(0, batch.rows);
  return network_.model.next_logits({.tape = tape, .batch = batch, .state = view, .write_state = false}, at);
}

void ModelReader::gradient(const Batch& batch) {
  Tape tape;
  store_.zero_gradients();
  const LossTerms terms = forward(tape, batch, false);
  tape.backward({{terms.terms[0].sum, 1.0}});
}

}  // namespace quire::test
