// The steps in which the rows of a pass read windows of their documents, one window or a part of one in each.
#pragma once

#include <vector>

#include "layers/mixers/block_recurrent_states.h"

namespace quire {

struct WindowStep {
  int64_t width;  // W: tokens of a step
  Tensor cells;   // i32 [R, W]: the token of the row, -1: none
  Tensor list;    // i32 [R, W]: 0 for a token, -1: none
  Tensor
      visible;  // i32 [R, W]: the first key that a token sees (kernels/attention.h), of those before it and the step's
  // [R]: the tokens of a row, and how many tokens of the document are known before the row's next step; -1: it has
  // none.
  std::vector<int64_t> queries, next_known;
  // Says whether the keys of this step are the last `slots` keys before the next one.
  bool leaves_own_keys(int64_t slots) const;
  // i32 [R, slots]: the keys before the next step, newest last, among `slots` keys before this step and its own.
  Tensor next_slots(int64_t slots, Device device) const;
};

struct WindowWalk {
  std::vector<WindowStep> steps;
  Tensor place;  // i32 [R, T]: of a token in the steps, one behind the other; -1: none
};

// pieces in the order of rows, of a pass of T tokens. width: of all steps; 0: that of the step's longest piece.
WindowWalk walk_windows(const std::vector<RecurrentPiece>& pieces, int64_t rows, int64_t tokens,
                        const BlockRecurrentConfig& config, int64_t width, Device device);

}  // namespace quire
