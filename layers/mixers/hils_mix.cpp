#include "layers/mixers/hils_mix.h"

#include "autograd/functions/chunks.h"
#include "layers/mixers/hils_parts.h"

namespace quire {

namespace {

Variable joined(Tape& tape, const Variable& a, const Variable& b) {
  return b.defined() ? concatenate(tape, std::vector{a, b}, 2) : a;
}

}  // namespace

HilsMix hils_mix(Tape& tape, const HilsConfig& config, const HilsShape& shape, const HilsTables& tables,
                 const HilsInput& in) {
  const HilsParts parts(tape, config, shape, tables, in);
  const Variable keys = parts.behind(in.before_keys, in.k), values = parts.behind(in.before_values, in.v);
  HilsMix mix;
  parts.read_window(mix, keys, values);
  if (tables.chosen == 0) {
    parts.weigh(mix, {});
    mix.out = parts.of_window(mix);
    return mix;
  }
  const Variable own_keys = parts.own_lines(keys), own_values = parts.own_lines(values);
  HilsLines lines;
  Variable scores;
  const bool exact = config.summary == HilsSummary::exact;
  if (exact) {
    const HilsLines stored = parts.stored_lines(parts.all_stored());
    lines = {stored.keys.defined() ? joined(tape, stored.keys, own_keys) : own_keys,
             stored.values.defined() ? joined(tape, stored.values, own_values) : own_values};
    scores = parts.exact_scores(lines.keys);
  } else {
    mix.summaries = parts.summaries(keys, own_keys);
    scores = parts.summary_scores(mix.summaries);
  }
  mix.chosen = in.choose([&] { return parts.best(scores.value(), mix.window_sum.value()); });
  std::vector<int32_t> chosen = parts.on_host(mix.chosen);
  if (!exact) {
    const HilsLines stored = parts.stored_lines(parts.take_stored(chosen));
    lines = {joined(tape, own_keys, stored.keys), joined(tape, own_values, stored.values)};
  }
  parts.weigh(mix, scores);
  const Variable read = chunk_attention(tape, in.q, lines.keys, lines.values, mix.weights,
                                        Tensor::from(chosen, mix.chosen.shape(), mix.chosen.device()), in.scale);
  mix.out = add(tape, parts.of_window(mix), read);
  return mix;
}

}  // namespace quire
