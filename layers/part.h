// A part of a block: what it makes of its input is added to the residual stream. Mixers, feed-forward layers and
// attention to what other layers left are parts.
#pragma once

#include "layers/forward.h"

namespace quire {

class Norm;

struct PartInput {
  Variable x;                  // [R, T, E]: what the residual stream holds
  const Norm* norm = nullptr;  // nullptr where the normalisation follows the sum
  // x with the normalisation, where it comes first. Called once: it is an operation.
  Variable normalised(Tape& tape) const;
};

class Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;
  virtual Variable operator()(const Forward& f, const PartInput& input) const = 0;  // [R, T, E]
};

}  // namespace quire
