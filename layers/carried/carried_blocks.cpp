#include "layers/carried/carried_blocks.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace quire {

int64_t with_places_to_spare(int64_t blocks) {
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(blocks)) / 16);
  return step > 1 ? (blocks + step - 1) / step * step : blocks;
}

CarriedBlocks carried_blocks(const Forward& f, int64_t period, LogGroupId tail, LogGroupId blocks,
                             const std::string& layer) {
  const std::vector<int64_t> none(static_cast<size_t>(f.state.rows()), 0);
  CarriedBlocks carried{none, none, none, none};
  const std::vector<int64_t> lengths = f.state.lengths(blocks);
  for (const Segment& segment : f.state.segments()) {
    const int64_t position = f.batch.position[static_cast<size_t>(f.batch.at(segment.row, segment.begin))];
    const bool begins = !segment.carried || f.batch.starts[static_cast<size_t>(segment.row)] != 0;
    if (begins && position > 0) {
      fail(ErrorKind::config,
           "{}: a document is read from position {} on without what lies before it, which the blocks of this layer "
           "need; read documents from their beginning (data.sampling: documents)",
           layer, position);
    }
    if (!segment.carried) continue;
    const auto row = static_cast<size_t>(segment.row);
    const int64_t known = f.state.written(tail, segment.row);
    carried.first[row] = (position - known + period - 1) / period;
    carried.tail[row] = std::min(position % period, known);
    carried.length[row] = lengths[row];
    carried.written[row] = position / period;
    carried.max_tail = std::max(carried.max_tail, carried.tail[row]);
    carried.max_length = std::max(carried.max_length, carried.length[row]);
  }
  carried.max_length = std::min(with_places_to_spare(carried.max_length), f.state.capacity(blocks));
  return carried;
}

Tensor by_row(const std::vector<int64_t>& values, Device device) {
  return Tensor::from(std::vector<int32_t>(values.begin(), values.end()), {static_cast<int64_t>(values.size())},
                      device);
}

}  // namespace quire
