// The steps in which the rows of a pass read windows of their documents, one window or a part of one in each.
#pragma once

#include <vector>

#include "layers/mixers/block_recurrent_states.h"

namespace quire {

struct WindowStep {
  int64_t width = 0;  // W: tokens of a step
  Tensor cells;       // i32 [R, W]: the token of the row, -1: none
  Tensor list;        // i32 [R, W]: 0 for a token, -1: none
  Tensor visible;     // i32 [R, W]: the first key that a token sees, as kernels/attention.h counts them
  // [R]: the tokens of a row, and how many tokens of the document are known before the row's next step; -1: no next
  // one.
  std::vector<int64_t> queries, next_known;
  bool ends = false;  // some row reads its last tokens here, whose keys it carries
  // Says whether the keys of this step are the last `slots` keys before the next one.
  bool leaves_own_keys(int64_t slots) const;
  // i32 [R, slots]: the keys before the next step, newest last, among `slots` keys before this step and its own.
  Tensor next_slots(int64_t slots, Device device) const;
};

struct WindowWalk {
  std::vector<WindowStep> steps;
  Tensor place;       // i32 [R, T]: of a token in the steps, one behind the other; -1: none
  Tensor place_kept;  // the same in the steps where rows end
};

struct WalkShape {
  int64_t rows, tokens;
  int64_t width = 0;  // of all steps; 0: that of the step's longest piece
  int64_t carried;    // last tokens of a row whose keys it carries
};
// pieces in the order of rows.
WindowWalk walk_windows(const std::vector<RecurrentPiece>& pieces, const BlockRecurrentConfig& config,
                        const WalkShape& shape, Device device);

}  // namespace quire
