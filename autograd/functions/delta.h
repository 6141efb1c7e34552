// The gated delta rule; formula and shapes in kernels/delta.h.
#pragma once

#include "autograd/tape.h"

namespace quire {

struct DeltaVariables {
  Variable q, k, v;  // [N, H, Dk], [N, H, Dk], [N, HV, Dv]
  Variable g;        // wide [N, HV, 1 or Dk]
  Variable erase;    // wide [N, HV, 1 or Dk]; undefined: additive rule
  Variable write;    // wide [N, HV, 1 or Dv]
  Variable state;    // wide [S, HV, Dk, Dv]
};
struct DeltaResult {
  Variable out;   // [N, HV, Dv]
  Variable last;  // wide [S, HV, Dk, Dv]: the state that each segment leaves
};
// segments: i32 [S, 2], first cell and number of cells of each.
DeltaResult delta_rule(Tape& tape, const DeltaVariables& x, const Tensor& segments, double scale);

// The log decay g, wide [N, HV, F], of a [N, HV, F], log_rate wide [HV] or undefined, and bias wide [HV, F].
struct DecayVariables {
  Variable a, log_rate, bias;
};
Variable delta_decay(Tape& tape, const DecayVariables& x, double bound);

}  // namespace quire
