// Queries, keys and values of HiLS attention: projections, normalisation and rotation.
#pragma once

#include <vector>

#include "layers/mixers/hils_mix.h"

namespace quire {

// Weights [out, in] of a layer of width E, as variables or parameters. Those that its options leave out are undefined.
template <typename V>
struct HilsWeightsOf {
  V query, key, value;     // [H D, E], [Hk D, E], [Hk Dv, E]
  V query_gain, key_gain;  // wide [D]; norm: all: [H D], [Hk D]
  V score_down, score_up;  // [rank, E], [H D, rank]
  V score;                 // score_query: full: [H D, E]
  V score_gain;            // as query_gain
  V landmark_query;        // [H, D]
};
using HilsWeights = HilsWeightsOf<Variable>;

// Rotates heads by positions; without a table it does nothing.
struct HilsRotation {
  Tensor table;  // made by rotary_table with position 0 first
  bool interleaved = false;

  // x [R, N, heads, D]; positions i32 [R, N].
  Variable operator()(Tape& tape, const Variable& x, const Tensor& positions, bool inverse = false) const;
};

struct HilsHeads {
  Variable q, score_q, k, v;  // rotated
  Variable unrotated_k;       // k before rotation
  Variable shared;            // [R, G, H, D]: the learned query at the landmarks; undefined without
};

// Returns the projections of z [R, T, E], normalised and rotated.
HilsHeads hils_heads(Tape& tape, const HilsConfig& config, const HilsShape& shape, const HilsWeights& weights,
                     const Variable& z, const HilsTables& tables, const HilsRotation& rotation);

// Returns the angles per position of the pairs of features, without those that turn less than `turns` times within
// `length` (HoPE), but always the first.
std::vector<double> hils_frequencies(std::vector<double> frequencies, std::optional<int64_t> length, double turns);

}  // namespace quire
