#include "autograd/tape.h"

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

void Tape::sweep() {
  while (!records_.empty()) {
    // Moved out first: when this iteration ends, everything the record held is free.
    const Record record = std::move(records_.back());
    records_.pop_back();
    if (record.gradient->has_value()) record.backward(record.gradient->take());
  }
}

}  // namespace quire
