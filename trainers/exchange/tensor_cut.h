// Cuts a matrix of quire out of a tensor of another layout, and puts it there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/bfloat16.h"
#include "core/shape.h"
#include "trainers/exchange/model_files.h"

namespace quire {

// A parameter [rows, columns], or [rows] with one column, is one of `parts` of a tensor with parts * rows rows.
struct TensorCut {
  int64_t part = 0;
  int64_t parts = 1;
  int64_t head_rows = 0;    // 0: the parts follow each other; otherwise they alternate every so many rows
  bool transposed = false;  // the tensor is [columns, rows]; vectors are as they are
  double added = 0;         // what quire's value has more: Gemma multiplies by 1 + w

  // The row of the tensor in which a row of a parameter with `rows` rows lies.
  int64_t row_of(int64_t row, int64_t rows) const {
    if (head_rows == 0) return part * rows + row;
    return (row / head_rows) * parts * head_rows + part * head_rows + row % head_rows;
  }
  // The shape of the tensor for a parameter of this shape.
  std::vector<int64_t> shape_of(const Shape& shape) const;
};

// Reads values [begin, begin + count) of the parameter, in its own order, from the bytes of the tensor. T: float,
// double or, from bf16 alone, bfloat16. Returns false when a value is too large for T.
template <typename T>
bool read_cut(const TensorCut& cut, const Shape& shape, StoredType type, std::span<const std::byte> bytes,
              int64_t begin, std::span<T> out);

// Writes the parameter's values into the bytes of the tensor, which has room for all of its parts. Throws Error(data)
// for a value that the type cannot hold.
template <typename T>
void write_cut(const TensorCut& cut, const Shape& shape, std::span<const T> values, StoredType type,
               std::span<std::byte> bytes, const std::string& name);

extern template bool read_cut(const TensorCut&, const Shape&, StoredType, std::span<const std::byte>, int64_t,
                              std::span<bfloat16>);
extern template bool read_cut(const TensorCut&, const Shape&, StoredType, std::span<const std::byte>, int64_t,
                              std::span<float>);
extern template bool read_cut(const TensorCut&, const Shape&, StoredType, std::span<const std::byte>, int64_t,
                              std::span<double>);
extern template void write_cut(const TensorCut&, const Shape&, std::span<const bfloat16>, StoredType,
                               std::span<std::byte>, const std::string&);
extern template void write_cut(const TensorCut&, const Shape&, std::span<const float>, StoredType, std::span<std::byte>,
                               const std::string&);
extern template void write_cut(const TensorCut&, const Shape&, std::span<const double>, StoredType,
                               std::span<std::byte>, const std::string&);

}  // namespace quire
