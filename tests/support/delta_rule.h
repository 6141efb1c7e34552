// The delta rule in chunks, on the host in double precision. Positions of a chunk read a matrix S [D, D] per head as it
// was before the chunk, out = q S, and gather A = sum of k^T (v - k S); behind the chunk S grows by rate * A. A chunk
// is `chunk` positions of a document, whatever a row is cut into.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "core/batch.h"

namespace quire::test {

struct DeltaRuleInputs {
  Variable q, k, v;               // [R, T, H, D]
  Variable begin;                 // [H, D, D]: what empty segments begin with
  Tensor weights, gathered;       // [S, H, D, D]: S and A of the others
  std::vector<uint8_t> is_empty;  // [S]
  std::vector<Segment> segments;  // S of them
  const Batch& batch;
  int64_t chunk;
  double rate;
};

struct DeltaRule {
  Variable out;              // [R, T, H, D]; 0 at padding
  Variable error;            // f64 [1]: sum of |v - k S|^2
  Tensor weights, gathered;  // what each segment leaves
  double key_power;          // sum of |k|^2 over positions
};

DeltaRule delta_rule(Tape& tape, const DeltaRuleInputs& in);

}  // namespace quire::test
