// A register: small values with a current and a next copy for each row. Layers read current and put next; the commit
// copies what was put.
#pragma once

#include <vector>

#include "core/batch.h"
#include "core/tensor.h"
#include "layers/state/state_layout.h"

namespace quire {

struct StateRegister {
  // Returns the type of the values, of which there are two copies.
  static DType type(const StateLayout::Register& spec, DType pool_type);

  StateRegister(const StateLayout::Register& spec, int64_t rows, DType pool_type, Device device);

  void clear_row(int64_t row);
  // Forgets what a failed step has put.
  void forget();
  void put(int64_t row, bool written);
  // `last` is the segment of each row that its state comes from.
  void commit(const std::vector<Segment>& last);

  Tensor current;              // [rows, ...]
  Tensor next;                 // [rows, ...]
  std::vector<uint8_t> empty;  // [rows]: nothing was committed since the document began or the row was cleared

 private:
  // Says what this step does with a row. left: it puts nothing there, and the value of an earlier document is dropped.
  enum class Offer : uint8_t { none, left, written };
  std::vector<Offer> offers_;
};

}  // namespace quire
