// A log: a ring of entries for each row, and what the step has queued for the commit.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "layers/state/log_positions.h"

namespace quire {

class StateLog {
 public:
  // `scratch` is the folder of logs that lie in files; empty is the folder for temporary files.
  StateLog(const StateLayout::Log& spec, const LogPositions& positions, int64_t rows, DType pool_type, Device device,
           const std::filesystem::path& scratch);

  const Tensor& ring() const { return ring_; }  // [rows, C, ...]

  // For the rows from row_begin on: entry j of row r is values[r, from[r] + j stride]. Logs that do not wait are
  // written at once, behind what can be read.
  struct Entries {
    int64_t row_begin;
    Tensor values;  // [R, N, ...]
    std::vector<int64_t> from, count;
    int64_t stride = 1;
    std::vector<int64_t> to = {};  // of a replacement: entries counted from the oldest one
  };
  void append(Entries entries, const LogPositions& positions);
  void replace(Entries entries) { replacements_.push_back(std::move(entries)); }
  // Forgets what a failed step has queued.
  void forget();

  // A commit calls these in this order. last: the segment of each row that its state comes from.
  void write_replacements(const LogPositions& positions, const std::vector<Segment>& last);
  void begin_document(const LogPositions& positions, int64_t row) const;
  void write_appends(const LogPositions& positions);

  // [rows]: entries that this step appends; -1: append was not called.
  std::vector<int64_t> taken;

 private:
  void write(const Entries& entries, const std::vector<int32_t>& slot, const std::vector<int32_t>& from,
             const std::vector<int32_t>& count) const;

  Tensor ring_;
  std::vector<Entries> appends_, replacements_;
};

}  // namespace quire
