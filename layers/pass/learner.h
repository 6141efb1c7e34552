// A part of a layer that learns once per optimizer step and without a gradient: moving averages of the layer's keys,
// for example.
#pragma once

#include <vector>

#include "core/random.h"
#include "core/tensor.h"
#include "layers/pass/telemetry.h"

namespace quire {

struct LearnerStep {
  RandomKey key;
  int64_t update = 1;  // counts from 1
  int64_t rows = 0;    // of all ranks
  int64_t length = 0;  // T
};

// Between begin_step and update, the layer that owns it passes it the values of the step's training passes.
class Learner {
 public:
  Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  virtual ~Learner() = default;
  virtual void begin_step(const LearnerStep& step) = 0;
  // Returns the sums of this step on this rank. The trainer adds up those of all ranks, in place, before update.
  virtual std::vector<Tensor> sums() const = 0;
  virtual void update(const Tensor& control) = 0;  // control: kernels/optimizer.h
  // Adds numbers about the last step. It reads from the device.
  virtual void report(Telemetry& telemetry) const = 0;
};

}  // namespace quire
