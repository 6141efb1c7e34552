// Helpers of the CPU kernels: element type dispatch, Eigen views, tiles that depend only on shapes.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "core/bfloat16.h"
#include "core/check.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace quire::cpu {

template <typename T>
using RowMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using MatrixView = Eigen::Map<RowMatrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <typename T>
using ConstMatrixView = Eigen::Map<const RowMatrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <typename T>
using ArrayView = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;
template <typename T>
using ConstArrayView = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;

// Calls function(T{}) with T = float or double.
template <typename Function>
void dispatch(const char* op, DType dtype, Function&& function) {
  if (dtype == DType::f32) {
    function(float{});
  } else if (dtype == DType::f64) {
    function(double{});
  } else {
    fail(ErrorKind::internal, "{}: {} has no CPU kernel; use f32", op, name_of(dtype));
  }
}

// Does the same for operations that also take bf16, which they read and write as Wide<bfloat16> = float.
template <typename Function>
void dispatch_stored(const char* op, DType dtype, Function&& function) {
  if (dtype == DType::bf16) {
    function(bfloat16{});
  } else {
    dispatch(op, dtype, function);
  }
}

// The type in which values stored as T are computed.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;
template <typename T>
Wide<T> wide(T value) {
  return static_cast<Wide<T>>(value);
}
template <typename T>
T narrow(std::type_identity_t<Wide<T>> value) {
  return static_cast<T>(value);
}

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The elements of a tile of a memory-bound kernel: enough to outweigh the cost of scheduling a tile, few enough for two
// or more threads to share the work.
inline constexpr int64_t kElementTile = 16384;

// Calls body(begin, end) over [0, count) in tiles.
template <typename Body>
void for_elements(int64_t count, Body&& body) {
  parallel_for(ceil_div(count, kElementTile),
               [&](int64_t tile) { body(tile * kElementTile, std::min(count, (tile + 1) * kElementTile)); });
}

// Calls body(begin, end) over rows of `width` elements.
template <typename Body>
void for_rows(int64_t rows, int64_t width, Body&& body) {
  const int64_t per_tile = std::max<int64_t>(1, kElementTile / std::max<int64_t>(width, 1));
  parallel_for(ceil_div(rows, per_tile),
               [&](int64_t tile) { body(tile * per_tile, std::min(rows, (tile + 1) * per_tile)); });
}

// Scratch memory that belongs to the thread: kernels run in the same order every step, so it is allocated once. It is
// aligned like tensors: Eigen begins a sum at the first aligned element, so its order and its bits depend on the
// address.
template <typename T>
T* scratch(int slot, int64_t count) {
  using Buffer = std::vector<T, Eigen::aligned_allocator<T>>;
  static thread_local std::array<Buffer, 16> buffers;
  Buffer& buffer = buffers[static_cast<size_t>(slot)];
  if (static_cast<int64_t>(buffer.size()) < count) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

// Returns values in the type in which they are computed: the values themselves, or for bf16 a copy in the thread's
// scratch.
template <typename T>
const Wide<T>* widened(const T* from, int64_t count, int slot) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return from;
  } else {
    Wide<T>* const to = scratch<Wide<T>>(slot, count);
    for (int64_t i = 0; i < count; ++i) to[i] = wide(from[i]);
    return to;
  }
}
// Returns the memory for results that store_narrow stores later: the result itself, or for bf16 the thread's scratch.
template <typename T>
Wide<T>* widened_result(T* to, int64_t count, int slot) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return to;
  } else {
    return scratch<Wide<T>>(slot, count);
  }
}
template <typename T>
void store_narrow(T* to, const Wide<T>* from, int64_t count) {
  if constexpr (!std::is_same_v<T, Wide<T>>) {
    for (int64_t i = 0; i < count; ++i) to[i] = narrow<T>(from[i]);
  }
}

// Exponentials are exactly zero below this, which is near the logarithm of the smallest normal number, so that a logit
// masked with -inf adds exactly nothing. (Eigen's vector exp returns that smallest number instead.)
template <typename T>
inline constexpr T kSmallestExponent = sizeof(T) == 4 ? T(-87) : T(-708);

// Returns the number of partial sums of a reduction over rows: it is small, and depends only on the shape.
inline int64_t reduction_parts(int64_t rows) {
  return std::clamp<int64_t>(rows / 64, 1, 16);
}

// Calls every bind_NAME() of the kernels (kernels/binders.cmake).
void bind_all();

}  // namespace quire::cpu
