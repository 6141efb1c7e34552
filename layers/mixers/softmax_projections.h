// The projections of softmax attention, with their biases and the normalisation of queries and keys.
#pragma once

#include <utility>

#include "layers/mechanism/mechanism.h"
#include "layers/mixers/softmax_config.h"
#include "layers/parts/basic.h"

namespace quire {

class SoftmaxProjections {
 public:
  SoftmaxProjections(const Scope& scope, const Place& place, const SoftmaxConfig& config);

  // z [R, T, E]: queries [R, T, H, D], keys and values [R, T, Hk, D]; queries and keys normalised, not rotated.
  Variable queries(Tape& tape, const Variable& z) const;
  std::pair<Variable, Variable> keys_and_values(Tape& tape, const Variable& z) const;
  // [R, T, E] of mixed [R, T, H, D], added to the residual where there is one.
  Variable out(Tape& tape, const Variable& mixed, const Variable& residual) const;

 private:
  // x [R, T, heads * D] as heads, normalised; gain is undefined without rms_qk_norm.
  Variable normalised(Tape& tape, const Variable& x, int64_t heads, const Parameter& gain) const;

  bool qk_norm_;
  RmsQkNorm rms_qk_norm_;
  double eps_;  // of rms_qk_norm
  int64_t heads_, key_heads_, head_size_;
  Linear query_, key_, value_, out_;
  Parameter query_gain_, key_gain_;  // rms_qk_norm: [D], or [H * D] and [Hk * D]
};

}  // namespace quire
