// What learns once an optimizer step and without a gradient: moving averages of what a layer saw, for example.
#pragma once

#include <vector>

#include "core/random.h"
#include "core/tensor.h"
#include "layers/telemetry.h"

namespace quire {

struct LearnerStep {
  RandomKey key;
  int64_t update = 1;  // counts from 1
  int64_t rows = 0;    // of all ranks
  int64_t length = 0;  // T
};

// The layer that owns it hands it what the training passes of a step see, in between begin_step and update.
class Learner {
 public:
  Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  virtual ~Learner() = default;
  virtual void begin_step(const LearnerStep& step) = 0;
  // What the step has added up on this rank; those of all ranks are summed in place before update.
  virtual std::vector<Tensor> sums() const = 0;
  virtual void update(const Tensor& control) = 0;  // control: kernels/optimizer.h
  // Numbers about the last step. Reads from the device.
  virtual void report(Telemetry& telemetry) const = 0;
};

}  // namespace quire
