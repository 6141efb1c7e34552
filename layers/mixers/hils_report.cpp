// Telemetry of HiLS attention, and what its queries have retrieved.
#include "autograd/functions/axis.h"
#include "layers/mixers/block_report.h"
#include "layers/mixers/hils_layer.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// Returns the mean over heads and tokens of columns [begin, end) of weights [R, H, T, K + 2].
double mean_share(const Forward& f, const Tensor& weights, int64_t begin, int64_t end) {
  const std::vector<double> all = values_on_host(weights);
  const int64_t heads = weights.dim(1), length = weights.dim(2), width = weights.dim(3);
  double sum = 0, count = 0;
  for (int64_t line = 0; line < weights.numel() / width; ++line) {
    if (!f.batch.has_token(line / (heads * length) * length + line % length)) continue;
    for (int64_t n = begin; n < end; ++n) sum += all[static_cast<size_t>(line * width + n)];
    count += 1;
  }
  return count == 0 ? 0 : sum / count;
}

}  // namespace

// The number of the first own chunk of each cell's document, less the chunks before it that begin in this pass.
KeyBlocks HilsLayer::blocks_of(const HilsChunks& chunks, const HilsTables& tables) const {
  std::vector<int32_t> first(static_cast<size_t>(tables.rows * tables.length), 0);
  std::vector<int64_t> own(static_cast<size_t>(tables.rows), 0);
  for (const HilsSpan& span : chunks.spans()) {
    int64_t& of_row = own[static_cast<size_t>(span.row)];
    const int64_t number = of_row - (chunks.first_own(span) - span.slot / config_.chunk);
    std::fill_n(first.begin() + span.row * tables.length + span.begin, span.count, static_cast<int32_t>(number));
    of_row += chunks.count_own(span);
  }
  KeyBlocks blocks;
  blocks.first_on_host = Tensor::from(first, {tables.rows, tables.length});
  return blocks;
}

void HilsLayer::report(const Forward& f, const HilsChunks& chunks, const HilsTables& tables,
                       const CarriedBlocks& carried, const HilsMix& mix) const {
  const int64_t k = tables.chosen;
  const Tensor& weights = mix.weights.value();
  if (f.wants_telemetry() && config_.softmax_one)
    f.add_telemetry(name_ + ".nothing", mean_share(f, weights, k + 1, k + 2));
  if (k == 0) return;
  if (f.wants_telemetry()) f.add_telemetry(name_ + ".chunks", mean_share(f, weights, 0, k));
  Tape idle(false);
  const Variable scores = Variable::constant(mix.scores.value());
  const Shape column{tables.rows, shape_.heads, tables.length, 1};
  const Tensor zero = Tensor::zeros(column, weights.dtype(), weights.device());
  const std::vector<Variable> terms{scores, reshape(idle, Variable::constant(mix.window_sum.value()), column),
                                    Variable::constant(zero)};
  const Variable whole = log_sum_exp(idle, concatenate(idle, terms, 3), tables.terms);
  std::vector<BlockRead> reads;
  for (int64_t n = 0; n < k; ++n) {
    const Tensor score = slice(idle, scores, 3, n, n + 1).value().reshape({tables.rows, shape_.heads, tables.length});
    for (const bool stored : {true, false}) {
      const Tensor chosen = reads_of(f, tables, mix.chosen, n, stored);
      reads.push_back({score, stored ? chosen : Tensor(), stored ? Tensor() : chosen});
    }
  }
  report_blocks(f, name_, config_.chunk, &log_, carried, blocks_of(chunks, tables), reads, {whole.value(), {}});
}

Tensor HilsLayer::reads_of(const Forward& f, const HilsTables& tables, const Tensor& chosen, int64_t n,
                           bool stored) const {
  const std::vector<int32_t> places = chosen.to_vector<int32_t>();
  std::vector<int32_t> own, all;
  for (int64_t cell = 0; cell < tables.rows * tables.length * shape_.heads; ++cell) {
    const int64_t row = cell / shape_.heads / tables.length, t = cell / shape_.heads % tables.length;
    const int64_t line = (row * shape_.key_heads + cell % shape_.heads / shape_.group()) * tables.length + t;
    const int32_t place = places[static_cast<size_t>(line * tables.chosen + n)];
    all.push_back(place < tables.stored ? place : -1);
    own.push_back(place < tables.stored ? -1 : place - static_cast<int32_t>(tables.stored));
  }
  const Shape shape{tables.rows, tables.length, shape_.heads, 1};
  if (!stored) return Tensor::from(own, shape, f.state.device());
  return stored_slots(f, all, tables.stored).reshape(shape);
}

}  // namespace quire
