// Sizes of a tensor, outermost first. Rank at most 6.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace quire {

inline constexpr int kMaxRank = 6;
// The largest number of elements of a tensor. Sums of the bytes of many such tensors fit 64 bits.
inline constexpr int64_t kMaxElements = int64_t{1} << 42;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return sizes_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  int64_t& operator[](int axis) { return sizes_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  int64_t numel() const;  // Error(memory) above kMaxElements
  bool operator==(const Shape& other) const;
  std::string to_string() const;  // "[4, 512, 256]"

  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace quire
