// Updates weights from gradients: one class per optimizer.kind, over the parameter arena.
#pragma once

#include <functional>
#include <memory>

#include "trainers/optimizer/parameter_groups.h"
#include "trainers/optimizer/parameter_parts.h"

namespace quire {

// Some elements of a moment that an optimizer keeps for a parameter: "m.blocks.0.mlp.up.weight".
struct Moment {
  std::string name;
  Shape shape;             // shape of the whole moment
  int64_t begin = 0, end;  // the elements that this rank has
  Tensor values;           // a view, of `shape` when this rank has all elements, else [end - begin]

  bool whole() const { return begin == 0 && end == shape.numel(); }
};
// Returns "m.blocks.0.mlp.up.weight", or "m.blocks.0.mlp.up.weight[0:4096]" for a part of it.
std::string slice_name(const Moment& moment);

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates the weights of this rank's part. update counts from 1 and skipped steps do not count; control: see
  // kernels/optimizer.h.
  virtual void update(int64_t update, double learning_rate, const Tensor& control) = 0;

  // Returns the moments that this rank keeps.
  virtual std::vector<Moment> moments() const = 0;
  // Returns the same under slice_name().
  std::vector<NamedTensor> save() const;
  int64_t bytes() const;

 protected:
  Optimizer() = default;
};

// Returns where an optimizer allows parts of ranks to end.
ParameterParts::Cut cut_of(const OptimizerConfig& config);

// The store must be allocated; store and parts must outlive the optimizer.
std::unique_ptr<Optimizer> make_optimizer(const ParameterStore& store, const ParameterParts& parts,
                                          const OptimizerConfig& config);
// parts: the ranges of the arena that it updates, in order.
std::unique_ptr<Optimizer> make_adamw(const ParameterStore& store, const std::vector<ArenaRange>& parts,
                                      const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_adafactor(const ParameterStore& store, const ParameterParts& parts,
                                          const OptimizerConfig& config);
std::unique_ptr<Optimizer> make_muon(const ParameterStore& store, const ParameterParts& parts,
                                     const OptimizerConfig& config);

// Returns the peak learning rate that the schedule scales: optimizer.lr, or the rate that relative_step gives for an
// update.
double peak_learning_rate(const OptimizerConfig& config, int64_t update);

// Returns the square of the L2 norm of the gradients in some ranges of the arena: f64 [1], on the weights' device.
Tensor squared_gradient_norm(const ParameterStore& store, const std::vector<ArenaRange>& ranges);

// Returns a bound: a gradient whose norm, after clipping, is below it keeps the moments finite. A second moment is a
// convex combination of squares of single gradients, each at most the square of the norm: as long as that square is
// finite in the type of the moments, they are finite and need no check.
double largest_gradient_norm(DType dtype);

// Returns false when an update overflowed.
bool weights_are_finite(const ParameterStore& store);

}  // namespace quire
