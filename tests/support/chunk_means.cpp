#include "tests/support/chunk_means.h"

#include <algorithm>

#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"

namespace quire::test {

ChunkMeans chunk_means(Tape& t, const ChunkMeansInputs& in) {
  const Batch& batch = in.batch;
  const int64_t rows = batch.rows, size = in.x.dim(2), max_chunks = in.remembered.dim(1);
  const int64_t slots = max_chunks + batch.length / in.positions + 1, segments = in.sums.dim(0);
  const DType type = in.x.value().dtype();
  const Device device = in.x.value().device();
  // Assigns each position and each carried sum to a chunk that ends here, or to the unfinished chunk of a segment.
  std::vector<int32_t> to_chunk(batch.tokens.size(), -1), to_rest = to_chunk;
  std::vector<int32_t> carried_to_chunk(in.segments.size(), -1), carried_to_rest = carried_to_chunk;
  std::vector<uint8_t> readable(batch.tokens.size() * static_cast<size_t>(slots)), found(batch.tokens.size() * 2);
  ChunkMeans result;
  result.first.resize(static_cast<size_t>(rows));
  result.count = result.first;
  int64_t end = max_chunks;  // the slot behind the newest chunk of the row
  for (size_t s = 0; s < in.segments.size(); ++s) {
    const Segment& segment = in.segments[s];
    if (s == 0 || segment.row != in.segments[s - 1].row) end = max_chunks;
    const int64_t begin = end, first = batch.at(segment.row, segment.begin), last = first + segment.count;
    carried_to_rest[s] = static_cast<int32_t>(s);
    for (int64_t at = first, chunk = first; at < last; ++at) {
      const int64_t low = std::max(begin - in.lengths[s], end - max_chunks);
      std::fill_n(readable.begin() + at * slots + low, end - low, uint8_t{1});
      std::fill_n(found.begin() + at * 2, std::min<int64_t>(2, end - low), uint8_t{1});
      to_rest[at] = static_cast<int32_t>(s);
      if ((batch.position[at] + 1) % in.positions != 0) continue;
      std::fill(to_rest.begin() + chunk, to_rest.begin() + at + 1, -1);
      std::fill(to_chunk.begin() + chunk, to_chunk.begin() + at + 1, static_cast<int32_t>(end));
      if (chunk == first) {
        carried_to_chunk[s] = static_cast<int32_t>(segment.row * slots + end);
        carried_to_rest[s] = -1;
      }
      chunk = at + 1;
      ++end;
    }
    if (!segment.last) continue;
    result.first[segment.row] = begin;
    result.count[segment.row] = end - begin;
  }
  const auto index = [&](const std::vector<int32_t>& values, const Shape& shape) {
    return Tensor::from(values, shape, device);
  };
  const Variable carried = Variable::constant(in.sums), x = reshape(t, in.x, {rows * batch.length, size});
  const Variable here = scatter_rows(t, in.x, index(to_chunk, {rows, batch.length}), slots);
  const Variable before = convert(t, scatter_rows(t, carried, index(carried_to_chunk, {segments}), rows * slots), type);
  const Variable ended =
      scale(t, add(t, here, reshape(t, before, {rows, slots, size})), 1 / static_cast<double>(in.positions));
  const Variable none = Variable::constant(Tensor::zeros({rows, slots - max_chunks, size}, type, device));
  result.means = add(t, concatenate(t, std::vector{Variable::constant(in.remembered), none}, 1), ended);
  const Variable rest = scatter_rows(t, x.detached(), index(to_rest, {x.dim(0)}), segments);
  const Variable kept = scatter_rows(t, carried, index(carried_to_rest, {segments}), segments);
  result.sums = add(t, kept, convert(t, rest, in.sums.dtype())).value();
  result.readable = Tensor::from(readable, {rows, batch.length, slots}, device);
  result.found = Tensor::from(found, {rows, batch.length, 2}, device);
  return result;
}

}  // namespace quire::test
