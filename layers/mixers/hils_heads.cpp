#include "layers/mixers/hils_heads.h"

#include <numbers>

#include "autograd/functions/norm.h"
#include "autograd/functions/rotary.h"

namespace quire {

Variable HilsRotation::operator()(Tape& tape, const Variable& x, const Tensor& positions, bool inverse) const {
  if (!table.defined()) return x;
  ops::RotaryInputs settings;
  settings.table = table;
  settings.position = positions;
  settings.interleaved = interleaved;
  settings.inverse = inverse;
  return rotary(tape, x, settings);
}

HilsHeads hils_heads(Tape& tape, const HilsConfig& config, const HilsShape& shape, const HilsWeights& weights,
                     const Variable& z, const HilsTables& tables, const HilsRotation& rotation) {
  const auto by_head = [&](const Variable& x, int64_t heads, int64_t size) {
    return reshape(tape, x, {tables.rows, tables.length, heads, size});
  };
  const auto normalised = [&](const Variable& x, int64_t heads, const Variable& gain) {
    if (config.norm == HilsNorm::all) return by_head(rms_norm(tape, x, gain, config.norm_eps), heads, shape.size);
    return rms_norm(tape, by_head(x, heads, shape.size), gain, config.norm_eps);
  };
  const Variable queries = linear(tape, z, weights.query);
  HilsHeads heads;
  heads.q = rotation(tape, normalised(queries, shape.heads, weights.query_gain), tables.position);
  heads.unrotated_k = normalised(linear(tape, z, weights.key), shape.key_heads, weights.key_gain);
  heads.k = rotation(tape, heads.unrotated_k, tables.position);
  heads.v = by_head(linear(tape, z, weights.value), shape.key_heads, shape.value_size);
  heads.score_q = heads.q;
  if (config.has_score_query()) {
    const Variable asked = config.score_query == HilsScoreQuery::full
                               ? linear(tape, z, weights.score)
                               : linear(tape, linear(tape, z, weights.score_down), weights.score_up, {}, queries);
    heads.score_q = rotation(tape, normalised(asked, shape.heads, weights.score_gain), tables.position);
  }
  if (config.has_shared_query()) {
    const Variable one = reshape(tape, weights.landmark_query, {1, 1, shape.heads, shape.size});
    const Variable all = broadcast(tape, one, {tables.rows, tables.own, shape.heads, shape.size});
    heads.shared = rotation(tape, all, tables.mark_position);
  }
  return heads;
}

std::vector<double> hils_frequencies(std::vector<double> frequencies, std::optional<int64_t> length, double turns) {
  if (!length) return frequencies;
  const double slowest = 2 * std::numbers::pi * turns / static_cast<double>(*length);
  for (size_t i = 1; i < frequencies.size(); ++i) {
    if (frequencies[i] < slowest) frequencies[i] = 0;
  }
  return frequencies;
}

}  // namespace quire
