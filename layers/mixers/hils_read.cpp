// Reads chosen chunks: the lists of chunks of the queries become lists of queries of the chunks, so that a chunk is
// multiplied by all queries that read it at once.
#include <algorithm>

#include "autograd/functions/grouped_cross_attention.h"
#include "autograd/functions/rows.h"
#include "layers/mixers/hils_mix.h"
#include "layers/pass/carried_blocks.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// For each row and key head, P reads, which follow each other by chunk; the last ones may be unused.
struct ByChunk {
  int64_t reads;
  std::vector<int32_t> query;   // [R, Hk, P]: the line of q [R T H, D]; -1: none
  std::vector<int32_t> weight;  // [R, Hk, P]: the element of the weights
  std::vector<int32_t> chunk;   // [R, Hk, P]: -1: none
};

struct ReadSizes {
  int64_t rows, length, heads, key_heads, group, top_k, width, chunks;
};

ByChunk by_chunk(const ReadSizes& s, const std::vector<int32_t>& chosen) {
  const int64_t parts = s.rows * s.key_heads, of_part = s.length * s.top_k;
  std::vector<int64_t> begins(static_cast<size_t>(parts * (s.chunks + 1)), 0);
  ByChunk to{0, {}, {}, {}};
  for (int64_t part = 0; part < parts; ++part) {
    int64_t* const begin = begins.data() + part * (s.chunks + 1);
    for (int64_t i = 0; i < of_part; ++i) {
      const int32_t chunk = chosen[static_cast<size_t>(part * of_part + i)];
      if (chunk >= 0) begin[chunk + 1] += s.group;
    }
    for (int64_t n = 0; n < s.chunks; ++n) begin[n + 1] += begin[n];
    to.reads = std::max(to.reads, begin[s.chunks]);
  }
  to.reads = std::max<int64_t>(1, with_places_to_spare(to.reads));
  const auto all = static_cast<size_t>(parts * to.reads);
  to.query.assign(all, -1), to.weight.assign(all, -1), to.chunk.assign(all, -1);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t row = part / s.key_heads, first_head = part % s.key_heads * s.group;
    int64_t* const next = begins.data() + part * (s.chunks + 1);
    for (int64_t i = 0; i < of_part; ++i) {
      const int32_t chunk = chosen[static_cast<size_t>(part * of_part + i)];
      if (chunk < 0) continue;
      const int64_t t = i / s.top_k, n = i % s.top_k;
      for (int64_t head = first_head; head < first_head + s.group; ++head) {
        const auto at = static_cast<size_t>(part * to.reads + next[chunk]++);
        to.query[at] = static_cast<int32_t>((row * s.length + t) * s.heads + head);
        to.weight[at] = static_cast<int32_t>(((row * s.heads + head) * s.length + t) * s.width + n);
        to.chunk[at] = chunk;
      }
    }
  }
  return to;
}

}  // namespace

Variable hils_read(Tape& tape, const HilsShape& shape, const Variable& q, const HilsLines& lines,
                   const Variable& weights, const std::vector<int32_t>& chosen, double scale) {
  const int64_t rows = q.dim(0), length = q.dim(1), parts = rows * shape.key_heads;
  const int64_t chunks = lines.keys.dim(2), regular = lines.keys.dim(3);
  const Device device = q.value().device();
  const ByChunk reads = by_chunk({rows, length, shape.heads, shape.key_heads, shape.group(),
                                  static_cast<int64_t>(chosen.size()) / (parts * length), weights.dim(3), chunks},
                                 chosen);
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < parts * chunks; ++i) numbers.push_back(static_cast<int32_t>(i));
  const DType type = q.value().dtype(), wide = weights.value().dtype();
  ops::GroupedCrossAttentionInputs in;
  in.chosen = Tensor::from(numbers, {parts, chunks, 1}, device);
  in.list = Tensor::from(reads.chunk, {parts, reads.reads}, device);
  in.scale = scale;
  const Shape by_chunk{parts * chunks, regular, 1, shape.size}, by_value{parts * chunks, regular, 1, shape.value_size};
  const Tensor line = Tensor::from(reads.query, {parts, reads.reads}, device);
  const Tensor element = Tensor::from(reads.weight, {parts, reads.reads}, device);
  const Variable queries = gather_rows(tape, reshape(tape, q, {rows * length * shape.heads, shape.size}), line);
  const Variable whole = Variable::constant(
      tensor_of(std::vector<double>(static_cast<size_t>(parts * chunks), 1), {parts, chunks, 1}, wide, device));
  const Variable read =
      grouped_cross_attention(tape, reshape(tape, queries, {parts, reads.reads, 1, shape.size}),
                              reshape(tape, lines.keys, by_chunk), reshape(tape, lines.values, by_value), whole, in);
  const Variable shares =
      convert(tape, gather_rows(tape, reshape(tape, weights, {weights.value().numel(), 1}), element), type);
  const Variable weighted = multiply(tape, reshape(tape, read, {parts, reads.reads, shape.value_size}), shares);
  const Variable sums = scatter_rows(tape, reshape(tape, weighted, {parts * reads.reads, shape.value_size}),
                                     line.reshape({parts * reads.reads}), rows * length * shape.heads);
  return reshape(tape, sums, {rows, length, shape.heads, shape.value_size});
}

}  // namespace quire
