// Saves the state of a pool row by row and loads it into another pool, as checkpoints do.
#pragma once

#include <algorithm>
#include <cstring>

#include "layers/state/state_pool.h"

namespace quire::test {

struct SavedState {
  std::vector<RowPart> parts;
  std::vector<NamedTensor> counts;
  std::vector<std::vector<std::byte>> rows;
  RowExtent extent = RowExtent::whole;
};

inline SavedState saved_state(const StatePool& pool, RowExtent extent = RowExtent::whole) {
  SavedState saved{pool.row_parts(), pool.save_counts(), {}, extent};
  for (int64_t row = 0; row < pool.rows(); ++row) {
    std::vector<std::byte>& bytes = saved.rows.emplace_back();
    pool.save_row(
        row, [&](std::span<const std::byte> piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); }, extent);
  }
  return saved;
}

inline void load_state(StatePool& pool, const SavedState& saved) {
  require_fitting(saved.parts, pool.row_parts());
  pool.load_counts(0, pool.rows(), [&](const std::string& name) {
    return std::find_if(saved.counts.begin(), saved.counts.end(), [&](const NamedTensor& t) { return t.name == name; })
        ->tensor;
  });
  for (int64_t row = 0; row < pool.rows(); ++row) {
    const std::byte* next = saved.rows[static_cast<size_t>(row)].data();
    const auto read = [&](std::span<std::byte> piece) {
      std::memcpy(piece.data(), next, piece.size());
      next += piece.size();
    };
    pool.load_row(row, read, saved.extent);
  }
}

}  // namespace quire::test
