#include "autograd/tape.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

Variable Tape::output(Tensor value, std::initializer_list<const Variable*> inputs) const {
  if (recording_) {
    for (const Variable* input : inputs) {
      if (input->needs_gradient()) return Variable::leaf(std::move(value));
    }
  }
  return Variable::constant(std::move(value));
}

void Tape::record(const char* name, const Variable& output, std::function<void(const Tensor&)> backward) {
  QUIRE_CHECK(output.needs_gradient(), "{}: recorded without a gradient", name);
  records_.push_back({name, output.gradient(), std::move(backward)});
}

void Tape::record(const char* name, const std::vector<Variable>& outputs,
                  std::function<void(const std::vector<Tensor>&)> backward) {
  std::vector<std::shared_ptr<Gradient>> more;
  for (size_t i = 1; i < outputs.size(); ++i) {
    QUIRE_CHECK(outputs[i].needs_gradient(), "{}: output {} recorded without a gradient", name, i);
    more.push_back(outputs[i].gradient());
  }
  record(name, outputs.front(), [more, backward = std::move(backward)](const Tensor& first) {
    std::vector<Tensor> gradients{first};
    for (const std::shared_ptr<Gradient>& gradient : more) {
      gradients.push_back(gradient->has_value() ? gradient->take() : Tensor());
    }
    backward(gradients);
  });
  records_.back().more = std::move(more);
}

bool Tape::Record::is_wanted() const {
  return gradient->has_value() || std::any_of(more.begin(), more.end(), [](const auto& g) { return g->has_value(); });
}

void Tape::backward(const std::vector<Seed>& seeds) {
  for (const Seed& seed : seeds) {
    if (!seed.scalar.needs_gradient()) continue;
    QUIRE_CHECK(seed.scalar.value().numel() == 1 && seed.scalar.value().dtype() == DType::f64,
                "backward: the loss must be one f64 value, not {} {}", name_of(seed.scalar.value().dtype()),
                seed.scalar.shape().to_string());
    const double weight = seed.weight;
    seed.scalar.gradient()->add(Tensor::from(std::vector<double>{weight}, {1}, seed.scalar.value().device()));
  }
  sweep();
}

void Tape::backward(const Variable& output, const Tensor& gradient) {
  if (output.needs_gradient()) output.gradient()->add(gradient);
  sweep();
}

void Tape::backward(const std::vector<Variable>& outputs, const std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].needs_gradient() && gradients[i].defined()) outputs[i].gradient()->add(gradients[i]);
  }
  sweep();
}

void Tape::sweep() {
  while (!records_.empty()) {
    // Moved out first: when this iteration ends, everything the record held is free.
    const Record record = std::move(records_.back());
    records_.pop_back();
    if (!record.is_wanted()) continue;
    record.backward(record.gradient->has_value() ? record.gradient->take() : Tensor());
  }
}

}  // namespace quire
