// A part of a block: what it makes of its input is added to the residual stream. Mixers, feed-forward layers and
// attention to what other layers left are parts.
#pragma once

#include "layers/forward.h"

namespace quire {

class Norm;

struct PartInput {
  Variable z;                  // [R, T, E]: the input, normalised where the normalisation comes first
  Variable x;                  // [R, T, E]: before the normalisation
  const Norm* norm = nullptr;  // what made z of x; nullptr where the normalisation follows the sum
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
