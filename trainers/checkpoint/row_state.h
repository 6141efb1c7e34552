// The carried state of rows in a checkpoint. The global rows BEGIN, ..., END - 1 of one rank lie in two files:
//
//   state-BEGIN-END.rows   the bytes of the rows one after the other, without anything between them
//   state-BEGIN-END.h5     a few numbers of every row (layers/state/state_save.h) and the text "rows", which says what
//                          the bytes are: {"row_bytes", "parts": [{"name", "dtype", "shape"}], "checksums"}. The parts
//                          of a row follow one another; there is one XXH3 checksum for each row.
//
// Rows are written, read and verified one by one, so that no copy of a memory is made. Any number of ranks can read
// what any other number of them has written.
#pragma once

#include "layers/state/state_pool.h"
#include "trainers/checkpoint/checkpoint.h"

namespace quire {

// The rows of one file.
struct RowRange {
  std::string part;  // "state-BEGIN-END"
  int64_t begin;
  int64_t end;
};

// Returns the ranges in the order of rows. Throws Error(checkpoint) unless the files have each row of the run once.
std::vector<RowRange> row_ranges(const CheckpointReader& reader);

// The description that a file gives of its rows.
struct SavedRows {
  std::vector<NamedTensor> counts;  // [rows of the file]
  std::vector<RowPart> parts;
  int64_t row_bytes = 0;
  std::vector<std::string> checksums;  // by row
};
SavedRows read_saved_rows(const CheckpointReader& reader, const RowRange& range);

// Saves the rows of a pool, whose first one is the global row `first_row`.
void save_row_state(CheckpointFolder& folder, const StatePool& state, int64_t first_row);
// Loads the rows of a pool from whichever files they are in, and reads no other rows. Throws Error(checkpoint).
void load_row_state(const CheckpointReader& reader, StatePool& state, int64_t first_row);

}  // namespace quire
