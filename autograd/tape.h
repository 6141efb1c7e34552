// The tape records operations in order and sweeps them once in reverse. Each record is freed as soon as it is used.
#pragma once

#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "autograd/variable.h"

namespace quire {

// Says how a tape treats the operations that run on it.
enum class TapeMode {
  recording,
  idle,    // evaluation: nothing is saved and no result needs a gradient
  noting,  // idle, but it remembers which gradients a sweep would reach (see noted())
};

class Tape {
 public:
  explicit Tape(TapeMode mode = TapeMode::recording) : mode_(mode) {}
  explicit Tape(bool recording) : Tape(recording ? TapeMode::recording : TapeMode::idle) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  bool recording() const { return mode_ == TapeMode::recording; }
  size_t size() const { return records_.size(); }

  // The inputs of an operation. Optional inputs may be undefined.
  using Inputs = std::initializer_list<const Variable*>;
  // Returns true when the tape records and one of the inputs needs a gradient: then the result will need one.
  bool wants_gradient(Inputs inputs) const;

  // Returns the result of an operation. backward(const Tensor& dvalue) adds to the gradients of the inputs that need
  // one; it should capture only what it needs (not `value` unless it uses it).
  template <typename Backward>
  Variable result(const char* name, Tensor value, Inputs inputs, Backward&& backward) {
    if (mode_ == TapeMode::noting) note(gradients_of(inputs));
    if (!wants_gradient(inputs)) return Variable::constant(std::move(value));
    const Variable out = Variable::leaf(std::move(value));
    add_record(name, {out.gradient()}, gradients_of(inputs),
               [backward = std::forward<Backward>(backward)](const std::vector<Tensor>& dvalues) {
                 backward(dvalues.front());
               });
    return out;
  }
  // Returns the results of an operation with several results. backward receives the gradient of each, undefined where
  // none arrived.
  using Backward = std::function<void(const std::vector<Tensor>& dvalues)>;
  std::vector<Variable> results(const char* name, std::vector<Tensor> values, Inputs inputs, Backward backward);
  // Does the same with the gradients of the inputs, none of them null.
  std::vector<Variable> results(const char* name, std::vector<Tensor> values,
                                const std::vector<std::shared_ptr<Gradient>>& inputs, Backward backward);

  // On a noting tape, noted() returns the gradients of all inputs so far, each once, in the order of their first use.
  // Results of the tape itself have none, so these belong to values from outside: parameters, and the inputs that the
  // operations were given.
  void note(const std::vector<std::shared_ptr<Gradient>>& inputs);
  const std::vector<std::shared_ptr<Gradient>>& noted() const { return noted_; }

  // `last_use` is called in the sweep for each parameter that the records name as an input, as soon as no remaining
  // record may add to its gradient. A record that received no gradient counts as done when the sweep passes it.
  using LastUse = std::function<void(const std::shared_ptr<Gradient>& parameter)>;
  void on_last_use(LastUse last_use) { last_use_ = std::move(last_use); }

  // Computes the gradient of the sum of seed_i * scalar_i; scalars are f64 [1]. Clears the tape; gradients of leaves
  // and parameters remain.
  struct Seed {
    Variable scalar;
    double weight;
  };
  void backward(const std::vector<Seed>& seeds);
  // Sweeps from the gradient of one output of any shape.
  void backward(const Variable& output, const Tensor& gradient);
  // Sweeps from the gradients of several outputs; an undefined gradient counts as none.
  void backward(const std::vector<Variable>& outputs, const std::vector<Tensor>& gradients);

 private:
  using Gradients = std::vector<std::shared_ptr<Gradient>>;
  struct Record {
    const char* name;
    Gradients outputs;
    Gradients inputs;
    Backward backward;
  };

  static Gradients gradients_of(Inputs inputs);
  void add_record(const char* name, Gradients outputs, Gradients inputs, Backward backward);
  void sweep();

  TapeMode mode_;
  std::vector<Record> records_;
  Gradients noted_;
  LastUse last_use_;
};

}  // namespace quire
