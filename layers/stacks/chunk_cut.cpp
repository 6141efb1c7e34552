#include "layers/stacks/chunk_cut.h"

#include <algorithm>

namespace quire {

ChunkCut cut_chunks(const Forward& f, int64_t positions, const CarriedBlocks& carried, bool carries) {
  const Batch& batch = f.batch;
  const auto rows = static_cast<size_t>(batch.rows);
  ChunkCut cut;
  cut.positions = positions;
  cut.whole.resize(rows);
  cut.of_last.assign(rows, 0);
  std::vector<std::vector<int64_t>> begins(rows);  // of whole chunks, behind the begun ones
  std::vector<int32_t> list(rows * static_cast<size_t>(batch.length), -1);
  int64_t number_in_row = 0, row = -1;
  for (const Segment& segment : f.state.segments()) {
    number_in_row = segment.row == row ? number_in_row + 1 : 0;
    row = segment.row;
    const auto r = static_cast<size_t>(row);
    const int64_t begin = batch.position[static_cast<size_t>(batch.at(row, segment.begin))];
    const bool goes_on = carries && segment.carried;
    // The first chunk that is known from its beginning on, and the list that the first position reads.
    const int64_t first = goes_on ? carried.first[r] : (begin + positions - 1) / positions;
    int32_t reads = goes_on ? 0 : -1;
    int64_t of_segment = 0;
    for (int64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      const int64_t position = begin + t - segment.begin;
      list[static_cast<size_t>(batch.at(row, t))] = reads;
      if (position % positions != positions - 1) continue;
      reads = -1;
      if (position / positions < first) continue;
      begins[r].push_back(carried.max_tail + t + 1 - positions);
      cut.whole[r].push_back({number_in_row, goes_on, position / positions, t});
      reads = static_cast<int32_t>(cut.whole[r].size());
      ++of_segment;
    }
    if (segment.last) cut.of_last[r] = of_segment;
  }
  std::vector<int64_t> count;
  cut.aligned = carried.max_tail == 0;
  for (size_t r = 0; r < rows; ++r) {
    count.push_back(static_cast<int64_t>(cut.whole[r].size()));
    cut.max_chunks = std::max(cut.max_chunks, count.back());
    for (size_t i = 0; i < begins[r].size(); ++i) {
      cut.aligned = cut.aligned && begins[r][i] == static_cast<int64_t>(i) * positions;
    }
  }
  std::vector<int32_t> lines, marks;
  for (size_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < cut.max_chunks; ++i) {
      const bool exists = i < count[r];
      marks.push_back(exists ? static_cast<int32_t>(cut.whole[r][static_cast<size_t>(i)].mark) : -1);
      for (int64_t c = 0; c < positions; ++c) {
        lines.push_back(exists ? static_cast<int32_t>(begins[r][static_cast<size_t>(i)] + c) : -1);
      }
    }
  }
  const Device device = f.state.device();
  cut.lines = Tensor::from(lines, {batch.rows, cut.max_chunks * positions}, device);
  cut.marks = Tensor::from(marks, {batch.rows, cut.max_chunks}, device);
  cut.list = Tensor::from(list, {batch.rows, batch.length}, device);
  cut.count = by_row(count, device);
  return cut;
}

}  // namespace quire
