#include "layers/mixers/hils_mix.h"

#include "layers/mixers/hils_parts.h"

namespace quire {

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
  const Variable regular = parts.own_lines(keys);
  const bool exact = config.summary == HilsSummary::exact;
  std::pair<Tensor, Tensor> stored;
  Variable scores;
  if (exact) {
    stored = parts.stored(parts.all_stored());
    scores = parts.exact_scores(parts.all_keys(stored.first, regular));
  } else {
    mix.summaries = parts.summaries(keys, regular);
    scores = parts.summary_scores(mix.summaries);
  }
  mix.chosen = in.choose([&] { return parts.best(scores.value(), mix.window_sum.value()); });
  const HilsReads reads = parts.reads(mix.chosen, exact);
  if (!exact) stored = parts.stored(reads.places);
  parts.weigh(mix, scores);
  mix.out = add(tape, parts.of_window(mix), parts.read_chunks(mix, reads, stored, keys, values));
  return mix;
}

}  // namespace quire
