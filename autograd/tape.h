// Records operations in order and sweeps them once in reverse; each record is freed as it is used.
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "autograd/variable.h"

namespace quire {

class Tape {
 public:
  // A tape that does not record serves evaluation: nothing is saved, outputs need no gradient.
  explicit Tape(bool recording = true) : recording_(recording) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  bool recording() const { return recording_; }
  size_t size() const { return records_.size(); }

  // The result of an operation on these inputs; it needs a gradient when one of them does and the tape records.
  Variable output(Tensor value, std::initializer_list<const Variable*> inputs) const;

  // Called for an output that needs a gradient. backward receives the output's gradient and adds to its inputs'; it
  // holds what it needs and nothing else (never the output's value unless it uses it).
  void record(const char* name, const Variable& output, std::function<void(const Tensor& doutput)> backward);
  // For an operation with several outputs: backward receives the gradient of each, undefined where nothing arrived.
  void record(const char* name, const std::vector<Variable>& outputs,
              std::function<void(const std::vector<Tensor>& doutputs)> backward);

  // d(sum of seed_i * scalar_i): scalars are f64 [1]. Clears the tape; gradients of leaves and parameters remain.
  struct Seed {
    Variable scalar;
    double weight;
  };
  void backward(const std::vector<Seed>& seeds);
  // The sweep from the gradient of one output of any shape.
  void backward(const Variable& output, const Tensor& gradient);
  // From those of several outputs; an undefined one counts as none.
  void backward(const std::vector<Variable>& outputs, const std::vector<Tensor>& gradients);

 private:
  void sweep();
  struct Record {
    const char* name;
    std::shared_ptr<Gradient> gradient;
    std::function<void(const Tensor&)> backward;
    std::vector<std::shared_ptr<Gradient>> more = {};  // of further outputs, which backward takes itself
    bool is_wanted() const;
  };

  bool recording_;
  std::vector<Record> records_;
};

}  // namespace quire
