#include "layers/mixers/block_recurrent_walk.h"

#include <algorithm>

namespace quire {

bool WindowStep::leaves_own_keys(int64_t slots) const {
  if (slots != width) return false;
  for (size_t row = 0; row < queries.size(); ++row) {
    if (next_known[row] >= 0 && (queries[row] != width || next_known[row] < width)) return false;
  }
  return true;
}

Tensor WindowStep::next_slots(int64_t slots, Device device) const {
  std::vector<int32_t> index;
  for (size_t row = 0; row < queries.size(); ++row) {
    for (int64_t j = 0; j < slots; ++j) {
      index.push_back(slots - j <= next_known[row] ? static_cast<int32_t>(queries[row] + j) : -1);
    }
  }
  return Tensor::from(index, {static_cast<int64_t>(queries.size()), slots}, device);
}

namespace {

using PiecesOfRow = std::vector<const RecurrentPiece*>;

// Says for each step whether some row has one of its last `carried` tokens there.
std::vector<uint8_t> steps_of_ends(const std::vector<PiecesOfRow>& of_row, size_t steps, int64_t carried) {
  std::vector<uint8_t> ends(steps, 0);
  for (const PiecesOfRow& row : of_row) {
    int64_t left = carried;
    for (size_t n = row.size(); n-- > 0 && left > 0;) {
      ends[n] = 1;
      left -= row[n]->queries;
    }
  }
  return ends;
}

}  // namespace

WindowWalk walk_windows(const std::vector<RecurrentPiece>& pieces, const BlockRecurrentConfig& config,
                        const WalkShape& shape, Device device) {
  const int64_t rows = shape.rows, tokens = shape.tokens;
  std::vector<PiecesOfRow> of_row(static_cast<size_t>(rows));
  for (const RecurrentPiece& piece : pieces) of_row[static_cast<size_t>(piece.row)].push_back(&piece);
  size_t steps = 0;
  for (const PiecesOfRow& row : of_row) steps = std::max(steps, row.size());
  const std::vector<uint8_t> ends = steps_of_ends(of_row, steps, shape.carried);
  WindowWalk walk;
  std::vector<int32_t> place(static_cast<size_t>(rows * tokens), -1), place_kept = place;
  int64_t before = 0, before_kept = 0;  // tokens of earlier steps
  for (size_t n = 0; n < steps; ++n) {
    int64_t longest = shape.width;
    for (const PiecesOfRow& row : of_row) longest = n < row.size() ? std::max(longest, row[n]->queries) : longest;
    const auto size = static_cast<size_t>(rows * longest);
    std::vector<int32_t> cells(size, -1), list(size, -1), visible(size, static_cast<int32_t>(longest + 1));
    WindowStep step;
    step.width = longest;
    step.ends = ends[n] != 0;
    for (size_t r = 0; r < of_row.size(); ++r) {
      const PiecesOfRow& row = of_row[r];
      step.queries.push_back(n < row.size() ? row[n]->queries : 0);
      step.next_known.push_back(n + 1 < row.size() ? row[n + 1]->known : -1);
      for (int64_t i = 0; i < step.queries.back(); ++i) {
        const RecurrentPiece& piece = *row[n];
        const auto at = static_cast<size_t>(piece.row * longest + i);
        cells[at] = static_cast<int32_t>(piece.first_query + i);
        list[at] = 0;
        const int64_t seen = config.mask_empty ? std::min(config.window, i + piece.known) : config.window;
        visible[at] = static_cast<int32_t>(i - seen);
        const auto cell = static_cast<size_t>(piece.row * tokens + piece.first_query + i);
        place[cell] = static_cast<int32_t>(before + i);
        if (step.ends) place_kept[cell] = static_cast<int32_t>(before_kept + i);
      }
    }
    step.cells = Tensor::from(cells, {rows, longest}, device);
    step.list = Tensor::from(list, {rows, longest}, device);
    step.visible = Tensor::from(visible, {rows, longest}, device);
    before += longest;
    before_kept += step.ends ? longest : 0;
    walk.steps.push_back(std::move(step));
  }
  walk.place = Tensor::from(place, {rows, tokens}, device);
  walk.place_kept = Tensor::from(place_kept, {rows, tokens}, device);
  return walk;
}

}  // namespace quire
