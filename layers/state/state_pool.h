// Holds what rows carry along their documents. A register is small and has a current and a next copy; a log is a ring
// of entries per row with room for one step beyond what can be read, so nothing readable is overwritten before
// commit(). Nothing else in the program remembers anything about a document.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/tensor.h"
#include "layers/state/state_layout.h"
#include "layers/state/state_save.h"
#include "layers/state/state_view.h"

namespace quire {

class StatePool {
 public:
  // `segment` is T, the largest number of tokens of a step. `scratch` is the folder of logs that lie in files; empty is
  // the folder for temporary files.
  StatePool(StateLayout layout, int64_t rows, int64_t segment, DType dtype, Device device,
            const std::filesystem::path& scratch = {});

  int64_t rows() const { return state_.rows; }
  // Return the bytes in main memory and on the device, or those in one place.
  int64_t bytes() const { return bytes(LogPlace::device) + bytes(LogPlace::host); }
  int64_t bytes(LogPlace place) const;

  // Empties the rows whose document begins. batch has all rows of the pool.
  void begin_step(const Batch& batch);
  StateView view(int64_t begin, int64_t end) { return {state_, begin, end}; }
  // Makes this step's puts and appends visible. Rows flagged in cleared (non-finite values) are emptied instead.
  void commit(std::span<const uint8_t> cleared = {});

  // For plans: afterwards every row has read a text of at least so many positions, with what its logs hold of it.
  void assume_read(int64_t positions);

  // Save to and load from checkpoints (state_save.h): the bytes of one row at a time, and a few numbers of every row.
  std::vector<RowPart> row_parts() const { return quire::row_parts(state_); }
  void save_row(int64_t row, const WriteBytes& write, RowExtent extent = RowExtent::whole) const {
    quire::save_row(state_, row, write, extent);
  }
  int64_t row_bytes(int64_t row, RowExtent extent) const { return quire::row_bytes(state_, row, extent); }
  int64_t readable_bytes(const GetTensor& get) const { return quire::readable_bytes(state_, get); }
  std::vector<NamedTensor> save_counts() const { return quire::save_counts(state_); }
  // Rows [begin, end); then load_row() of each of them.
  void load_counts(int64_t begin, int64_t end, const GetTensor& get) { quire::load_counts(state_, begin, end, get); }
  void load_row(int64_t row, const ReadBytes& read, RowExtent extent = RowExtent::whole) {
    quire::load_row(state_, row, read, extent);
  }
  // Returns the whole state as tensors [rows, ...], to compare pools; values and rings are the pool's own, not copies.
  std::vector<NamedTensor> tensors() const { return state_tensors(state_); }

 private:
  void clear_row(int64_t row);
  void commit_group(size_t group);

  StateRows state_;
};

}  // namespace quire
