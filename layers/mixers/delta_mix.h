// The arithmetic of a layer with the gated delta rule (Yang et al. 2024, "Gated Delta Networks"; Kimi Team 2025, "Kimi
// Linear"; Gated DeltaNet-2, 2026), apart from the state that rows carry.
#pragma once

#include "autograd/functions/basic.h"
#include "layers/mixers/delta_config.h"

namespace quire {

// The sizes of the heads of a layer.
struct DeltaShape {
  int64_t key_heads, heads, key, value;  // H, HV, Dk, Dv
};

// Weights [out, in] of a layer of width E, as variables or parameters. What its options leave out is undefined.
template <typename V>
struct DeltaWeightsOf {
  V query, key, value;                 // [H Dk, E], [H Dk, E], [HV Dv, E]
  V query_taps, key_taps, value_taps;  // of the convolutions: [channels, W]
  V query_bias, key_bias, value_bias;  // of the convolutions: wide [channels]
  V decay_down, decay;                 // decay [HV, E], or [HV Dk, rank] behind decay_down [rank, E]
  V log_rate, decay_bias;              // wide [HV], [HV, 1 or Dk]
  V erase, write;                      // [HV, E]; gates: gdn2: [HV Dk, E], [HV Dv, E]
  V gate_down, gate, gate_bias;        // [rank, E], [HV Dv, E or rank], wide [HV Dv]
  V norm;                              // wide [Dv]
};
using DeltaWeights = DeltaWeightsOf<Variable>;

// The inputs of the convolutions before each segment, wide [S, W - 1, channels].
struct DeltaTaps {
  Tensor query, key, value;  // undefined without convolutions
};

struct DeltaMix {
  Variable out;           // [N, HV Dv]: what the projection to the residual stream reads
  Variable recalled;      // [N, HV, Dv]: what the states give, before its normalisation
  Variable decay;         // wide [N, HV, 1 or Dk]: the logarithm of what tokens keep
  Variable erase, write;  // wide [N, HV, 1 or Dk], [N, HV, 1 or Dv]
  Variable state;         // wide [S, HV, Dk, Dv]: what each segment leaves
  DeltaTaps taps;         // what each segment leaves
};

// Says where the last W - 1 inputs of each segment lie: recent in the N cells, earlier in the S (W - 1) carried inputs;
// one of both is -1, i32 [S, W - 1].
struct DeltaTapRows {
  Tensor recent, earlier;
};
// segments: first cell and number of cells of each.
DeltaTapRows delta_tap_rows(const std::vector<int32_t>& segments, int64_t taps, Device device);
// Returns these inputs, wide [S, W - 1, channels], of x [N, channels] and the carried ones.
Tensor delta_taps(const Tensor& x, const Tensor& before, const DeltaTapRows& rows);

// z [N, E]; state wide [S, HV, Dk, Dv]; segments i32 [S, 2], first cell and number of cells of each.
struct DeltaInput {
  Variable z, state;
  DeltaTaps taps;
  Tensor segments;
  DeltaTapRows tap_rows;
};
DeltaMix delta_mix(Tape& tape, const DeltaConfig& config, const DeltaShape& shape, const DeltaWeights& weights,
                   const DeltaInput& in);

}  // namespace quire
