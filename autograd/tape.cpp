#include "autograd/tape.h"

#include <algorithm>
#include <unordered_map>

#include "core/check.h"

namespace quire {

bool Tape::wants_gradient(Inputs inputs) const {
  return recording() &&
         std::any_of(inputs.begin(), inputs.end(), [](const Variable* input) { return input->needs_gradient(); });
}

Tape::Gradients Tape::gradients_of(Inputs inputs) {
  Gradients gradients;
  for (const Variable* input : inputs) {
    if (input->needs_gradient()) gradients.push_back(input->gradient());
  }
  return gradients;
}

void Tape::note(const Gradients& inputs) {
  for (const std::shared_ptr<Gradient>& gradient : inputs) {
    if (std::find(noted_.begin(), noted_.end(), gradient) == noted_.end()) noted_.push_back(gradient);
  }
}

void Tape::add_record(const char* name, Gradients outputs, Gradients inputs, Backward backward) {
  records_.push_back({name, std::move(outputs), std::move(inputs), std::move(backward)});
}

std::vector<Variable> Tape::results(const char* name, std::vector<Tensor> values, Inputs inputs, Backward backward) {
  return results(name, std::move(values), gradients_of(inputs), std::move(backward));
}

std::vector<Variable> Tape::results(const char* name, std::vector<Tensor> values, const Gradients& inputs,
                                    Backward backward) {
  if (mode_ == TapeMode::noting) note(inputs);
  const bool records = recording() && !inputs.empty();
  std::vector<Variable> outputs;
  Gradients gradients;
  for (Tensor& value : values) {
    outputs.push_back(records ? Variable::leaf(std::move(value)) : Variable::constant(std::move(value)));
    gradients.push_back(outputs.back().gradient());
  }
  if (records) add_record(name, std::move(gradients), inputs, std::move(backward));
  return outputs;
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
  std::unordered_map<const Gradient*, int64_t> uses;  // number of uses by the remaining records
  if (last_use_) {
    for (const Record& record : records_) {
      for (const auto& input : record.inputs) uses[input.get()] += input->is_parameter() ? 1 : 0;
    }
  }
  while (!records_.empty()) {
    // The record is moved out first, so that everything in it is freed when this iteration ends.
    Record record = std::move(records_.back());
    records_.pop_back();
    const bool is_needed = std::any_of(record.outputs.begin(), record.outputs.end(),
                                       [](const auto& gradient) { return gradient->has_value(); });
    if (is_needed) {
      std::vector<Tensor> dvalues;
      for (const auto& output : record.outputs) dvalues.push_back(output->has_value() ? output->take() : Tensor());
      record.backward(dvalues);
    }
    record.backward = nullptr;
    if (!last_use_) continue;
    for (const auto& input : record.inputs) {
      if (input->is_parameter() && --uses[input.get()] == 0) last_use_(input);
    }
  }
}

}  // namespace quire
