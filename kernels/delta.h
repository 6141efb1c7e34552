// The gated delta rule: a matrix per head that is read and written once a token.
#pragma once

#include <utility>

#include "kernels/op.h"

namespace quire::ops {

// Tokens are cells 0 .. N - 1. A segment is a run of cells of one document, with a state of its own. Value head j uses
// key head j / (HV / H).
struct DeltaInputs {
  Tensor q, k;      // [N, H, Dk]
  Tensor v;         // [N, HV, Dv]
  Tensor g;         // wide [N, HV, 1 or Dk]: log decay, not above 0
  Tensor erase;     // wide [N, HV, 1 or Dk]; undefined: nothing is read before a write (additive rule)
  Tensor write;     // wide [N, HV, 1 or Dv]
  Tensor state;     // wide [S, HV, Dk, Dv]: the state with which each segment begins
  Tensor segments;  // i32 [S, 2]: first cell and number of cells, in order and disjoint
  double scale = 1;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &k, &v, &g, &erase, &write, &state, &segments}) f(*tensor);
  }
};

// Gradients, each of its input's shape and type; they are overwritten. derase is undefined when erase is.
struct DeltaGradients {
  Tensor dq, dk, dv, dg, derase, dwrite, dstate;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dq, &dk, &dv, &dg, &derase, &dwrite, &dstate}) f(*tensor);
  }
};

// The states that the backward pass starts from are kept once in this many tokens of a segment.
inline constexpr int64_t kDeltaChunk = 32;
// Chunk c of segment s, whose first cell is b, has the entry b / kDeltaChunk + s + c.
inline int64_t delta_chunks(int64_t cells, int64_t segments) {
  return cells / kDeltaChunk + segments;
}

// For each token of a segment: S_d = exp(g_d) S_d; u = write * v - sum_d erase_d k_d S_d; S += k u^T; out = scale S^T
// q. (Yang et al. 2024, "Gated Delta Networks"; Kimi Team 2025, "Kimi Linear"; without `erase` the core of Mamba-2 and
// GLA) Writes out [N, HV, Dv], which is zero outside segments, last [S, HV, Dk, Dv] and, unless undefined, the states
// before each chunk, wide [delta_chunks, HV, Dk, Dv].
QUIRE_OP(delta_rule, const Tensor& out, const Tensor& last, const Tensor& chunks, const DeltaInputs& in);
// dlast may be undefined, which counts as zeros.
QUIRE_OP(delta_rule_backward, const DeltaGradients& to, const Tensor& dout, const Tensor& dlast, const Tensor& chunks,
         const DeltaInputs& in);

// The log decay of the gated delta rule from what a token asks for.
struct DeltaDecayInputs {
  Tensor a;          // [N, HV, F]
  Tensor log_rate;   // wide [HV]; undefined: rates are 1
  Tensor bias;       // wide [HV, F]
  double bound = 0;  // 0: unbounded; otherwise below 0

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&a, &log_rate, &bias}) f(*tensor);
  }
};

// Gradients; they are overwritten. dlog_rate is undefined when the rates are 1. da is of the type of a.
struct DeltaDecayGradients {
  Tensor da, dlog_rate, dbias;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&da, &dlog_rate, &dbias}) f(*tensor);
  }
};

// g = -exp(log_rate) softplus(a + bias), or with a bound g = bound sigmoid(exp(log_rate) (a + bias)). g is wide
// [N, HV, F]. (Yang et al. 2024, "Gated Delta Networks"; Kimi Team 2025, "Kimi Linear")
QUIRE_OP(delta_decay, const Tensor& g, const DeltaDecayInputs& in);
QUIRE_OP(delta_decay_backward, const DeltaDecayGradients& to, const Tensor& dg, const Tensor& g,
         const DeltaDecayInputs& in);

}  // namespace quire::ops
