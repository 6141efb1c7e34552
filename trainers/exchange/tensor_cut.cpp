#include "trainers/exchange/tensor_cut.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/bfloat16.h"
#include "core/check.h"

namespace quire {

namespace {

template <typename Stored>
Stored load(const std::byte* at) {
  Stored value;
  std::memcpy(&value, at, sizeof(Stored));
  return value;
}

double number_of(double value) {
  return value;
}
float number_of(float value) {
  return value;
}
float number_of(bfloat16 value) {
  return static_cast<float>(value);
}
struct Half {
  uint16_t bits;
};
float number_of(Half value) {
  return float_of_half(value.bits);
}

// Reads a run of values that lie `stride` elements apart.
template <typename Stored, typename T>
bool read_run(const std::byte* from, int64_t stride, double added, std::span<T> out) {
  if constexpr (std::is_same_v<Stored, T>) {
    if (stride == 1 && added == 0) {
      std::memcpy(out.data(), from, out.size_bytes());
      return true;
    }
  }
  bool fits = true;
  const auto step = stride * static_cast<int64_t>(sizeof(Stored));
  for (T& value : out) {
    const auto stored = number_of(load<Stored>(from));
    value = added == 0 ? static_cast<T>(stored) : static_cast<T>(static_cast<double>(stored) + added);
    if constexpr (sizeof(stored) > sizeof(T) && std::is_same_v<T, float>) {
      fits = fits && (std::isfinite(value) || !std::isfinite(stored));
    }
    from += step;
  }
  return fits;
}

template <typename Stored, typename T>
bool read_all(const TensorCut& cut, const Shape& shape, const std::byte* bytes, int64_t begin, std::span<T> out) {
  const int64_t rows = shape[0];
  const int64_t columns = shape.rank() == 1 ? 1 : shape.numel() / rows;
  const bool transposed = cut.transposed && shape.rank() > 1;
  const int64_t all_rows = rows * cut.parts;
  bool fits = true;
  for (size_t done = 0; done < out.size();) {
    const int64_t at = begin + static_cast<int64_t>(done);
    const int64_t row = at / columns, column = at % columns;
    // Whole tensors are one run.
    const int64_t run = cut.parts == 1 && !transposed
                            ? static_cast<int64_t>(out.size() - done)
                            : std::min(columns - column, static_cast<int64_t>(out.size() - done));
    const int64_t there = cut.row_of(row, rows);
    const int64_t first = transposed ? column * all_rows + there : there * columns + column;
    fits = read_run<Stored>(bytes + first * static_cast<int64_t>(sizeof(Stored)), transposed ? all_rows : 1, cut.added,
                            out.subspan(done, static_cast<size_t>(run))) &&
           fits;
    done += static_cast<size_t>(run);
  }
  return fits;
}

}  // namespace

std::vector<int64_t> TensorCut::shape_of(const Shape& shape) const {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  if (!sizes.empty()) sizes[0] *= parts;
  if (transposed && sizes.size() == 2) std::swap(sizes[0], sizes[1]);
  return sizes;
}

template <typename T>
bool read_cut(const TensorCut& cut, const Shape& shape, StoredType type, std::span<const std::byte> bytes,
              int64_t begin, std::span<T> out) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return type == StoredType::bf16 && read_all<bfloat16>(cut, shape, bytes.data(), begin, out);
  }
  switch (type) {
    case StoredType::f64:
      return read_all<double>(cut, shape, bytes.data(), begin, out);
    case StoredType::f32:
      return read_all<float>(cut, shape, bytes.data(), begin, out);
    case StoredType::bf16:
      return read_all<bfloat16>(cut, shape, bytes.data(), begin, out);
    case StoredType::f16:
      return read_all<Half>(cut, shape, bytes.data(), begin, out);
    default:
      return false;
  }
}

namespace {

template <typename Stored>
void store(std::byte* at, Stored value) {
  std::memcpy(at, &value, sizeof(Stored));
}

// Returns false when the type cannot hold the value.
bool store_as(StoredType type, double value, std::byte* at) {
  const auto narrow = static_cast<float>(value);
  switch (type) {
    case StoredType::f64:
      store(at, value);
      return true;
    case StoredType::f32:
      store(at, narrow);
      return std::isfinite(narrow) || !std::isfinite(value);
    case StoredType::bf16:
      store(at, bfloat16(narrow));
      return std::isfinite(static_cast<float>(bfloat16(narrow))) || !std::isfinite(value);
    case StoredType::f16:
      store(at, half_of(narrow));
      return std::isfinite(float_of_half(half_of(narrow))) || !std::isfinite(value);
    default:
      return false;
  }
}

}  // namespace

template <typename T>
void write_cut(const TensorCut& cut, const Shape& shape, std::span<const T> values, StoredType type,
               std::span<std::byte> bytes, const std::string& name) {
  const int64_t rows = shape[0];
  const int64_t columns = shape.rank() == 1 ? 1 : shape.numel() / rows;
  const bool transposed = cut.transposed && shape.rank() > 1;
  // The same type: rows are copied.
  const bool copied = !transposed && cut.added == 0 && type == stored_type_of(dtype_of<T>());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t there = cut.row_of(row, rows);
    if (copied) {
      const auto width = static_cast<size_t>(columns) * sizeof(T);
      std::memcpy(bytes.data() + static_cast<size_t>(there) * width, &values[static_cast<size_t>(row * columns)],
                  width);
      continue;
    }
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t at = transposed ? column * rows * cut.parts + there : there * columns + column;
      const double value =
          static_cast<double>(number_of(values[static_cast<size_t>(row * columns + column)])) - cut.added;
      if (!store_as(type, value, bytes.data() + at * size_of(type))) {
        fail(ErrorKind::data, "{}: the value {} is beyond what {} can hold; give another --dtype", name, value,
             name_of(type));
      }
    }
  }
}

template bool read_cut(const TensorCut&, const Shape&, StoredType, std::span<const std::byte>, int64_t,
                       std::span<bfloat16>);
template bool read_cut(const TensorCut&, const Shape&, StoredType, std::span<const std::byte>, int64_t,
                       std::span<float>);
template bool read_cut(const TensorCut&, const Shape&, StoredType, std::span<const std::byte>, int64_t,
                       std::span<double>);

template void write_cut(const TensorCut&, const Shape&, std::span<const bfloat16>, StoredType, std::span<std::byte>,
                        const std::string&);
template void write_cut(const TensorCut&, const Shape&, std::span<const float>, StoredType, std::span<std::byte>,
                        const std::string&);
template void write_cut(const TensorCut&, const Shape&, std::span<const double>, StoredType, std::span<std::byte>,
                        const std::string&);

}  // namespace quire
