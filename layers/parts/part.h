// A part of a block: its output is added to the residual stream. Mixers, feed-forward layers and attention to values of
// other layers are parts.
#pragma once

#include "layers/pass/forward.h"

namespace quire {

class Norm;

struct PartInput {
  Variable x;                  // [R, T, E]: what the residual stream holds
  const Norm* norm = nullptr;  // nullptr where the normalisation follows the sum
  Variable residual = {};      // what the output is added to; only for parts that add it (adds_residual())
  // x after the normalisation where that comes first, otherwise x. Call it once, since each call records an operation.
  Variable normalised(Tape& tape) const;
};

class Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;
  // Returns [R, T, E]: the part's output for the residual stream, or the sum where input.residual is given.
  virtual Variable operator()(const Forward& f, const PartInput& input) const = 0;
  // Says whether the part adds input.residual in its last product, which costs less than a pass over both. Other parts
  // are given none.
  virtual bool adds_residual() const { return false; }
};

}  // namespace quire
