// Holds everything that the rows of a rank carry. The pool owns it, and views read it.
#pragma once

#include <memory>
#include <vector>

#include "core/batch.h"
#include "layers/state/derived_state.h"
#include "layers/state/log_positions.h"
#include "layers/state/state_layout.h"
#include "layers/state/state_log.h"
#include "layers/state/state_register.h"

namespace quire {

struct StateRows {
  // Holds the derived state of every row; nullptr where it has not been made.
  using Derived = std::vector<std::unique_ptr<DerivedState>>;

  StateLayout layout;
  int64_t rows = 0;
  int64_t segment = 0;  // T, the largest number of tokens of a step
  DType dtype = DType::f32;
  Device device = kCpu;
  std::vector<StateRegister> registers;
  std::vector<LogPositions> groups;
  std::vector<StateLog> logs;
  std::vector<Derived> derived;
  int64_t clock = 0;  // number of commits

  // Holds, for the step, all segments in the order of their rows, the place of the first one of each row and the end,
  // and the segment that each row's state comes from (count 0 for a row without tokens).
  std::vector<Segment> segments;
  std::vector<size_t> first_segment;
  std::vector<Segment> last;
};

// Clears what was derived from a row's state.
inline void clear_derived(StateRows& state, int64_t row) {
  for (const StateRows::Derived& rows : state.derived) {
    if (DerivedState* const derived = rows[static_cast<size_t>(row)].get()) derived->clear();
  }
}

}  // namespace quire
