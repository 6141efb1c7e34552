// The sizes of a call of the gated delta rule, and the checks that the kernels of all devices make.
#pragma once

#include "kernels/delta.h"

namespace quire {

struct DeltaSizes {
  int64_t cells, heads, value_heads, group, key, value, segments;
  int64_t decay, erase, write;  // features of each gate: 1 or those of a key or value; 0: no erase gate

  // Throws Error(internal) when the shapes or types of the inputs do not fit.
  explicit DeltaSizes(const ops::DeltaInputs& in);
};

struct DecaySizes {
  int64_t cells, heads, features;

  // Throws Error(internal) when the shapes or types of the inputs do not fit.
  explicit DecaySizes(const ops::DeltaDecayInputs& in);
};

}  // namespace quire
