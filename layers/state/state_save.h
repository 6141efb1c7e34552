// Saves state to checkpoints and loads it. State that grows with the length of a memory is saved as the bytes of one
// row after the other, of which only a piece is in main memory at a time. A few numbers of every row are tensors
// [rows]:
//   registers       NAME.value in the bytes; NAME.empty
//   groups of logs  NAME.ages in the bytes, where they are kept: commits ago, counted from 1, of each entry from the
//                   oldest on, 0 behind the last; NAME.head, NAME.length, NAME.written
//   logs            NAME.ring in the bytes
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "layers/state/state_rows.h"

namespace quire {

// The largest number of bytes of a row that are handed over at once, ages aside.
inline constexpr int64_t kStatePieceBytes = int64_t{4} << 20;

// One part of the bytes of a row: a register, the ages of a group of logs, or a log.
struct RowPart {
  std::string name;
  DType dtype;
  Shape shape;  // of one row
  int64_t bytes() const { return shape.numel() * static_cast<int64_t>(size_of(dtype)); }
};

// Returns the parts of a row in the order of its bytes.
std::vector<RowPart> row_parts(const StateRows& state);
// Throws Error(checkpoint) that names the first part whose name, type or shape in a stored row is not the expected one.
void require_fitting(std::span<const RowPart> stored, std::span<const RowPart> expected);

// Says which slots of logs are among the bytes of a row: all, or only those that can be read, which are few while a
// document is short. What the model reads afterwards is the same.
enum class RowExtent { whole, readable };

using WriteBytes = std::function<void(std::span<const std::byte>)>;
void save_row(const StateRows& state, int64_t row, const WriteBytes& write, RowExtent extent = RowExtent::whole);
// Returns how many bytes save_row() hands over.
int64_t row_bytes(const StateRows& state, int64_t row, RowExtent extent);
std::vector<NamedTensor> save_counts(const StateRows& state);

// get(name) returns the numbers of the rows [begin, end) of the state. Throws Error(checkpoint) when they do not fit.
using GetTensor = std::function<Tensor(const std::string&)>;
// Returns the bytes of what can be read of a row with these numbers, [1] each.
int64_t readable_bytes(const StateRows& state, const GetTensor& get);
void load_counts(StateRows& state, int64_t begin, int64_t end, const GetTensor& get);
// read fills a buffer with the next bytes of the row. The row's numbers were loaded before.
using ReadBytes = std::function<void(std::span<std::byte>)>;
void load_row(StateRows& state, int64_t row, const ReadBytes& read, RowExtent extent = RowExtent::whole);

// Returns the whole state as tensors [rows, ...]. Values and rings are those of the state itself, not copies.
std::vector<NamedTensor> state_tensors(const StateRows& state);

}  // namespace quire
