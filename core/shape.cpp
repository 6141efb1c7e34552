#include "core/shape.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

Shape::Shape(std::initializer_list<int64_t> sizes) : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  QUIRE_CHECK(sizes.size() <= kMaxRank, "shape: rank {} is above {}", sizes.size(), kMaxRank);
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
}

int64_t Shape::numel() const {
  int64_t count = 1;
  bool fits = true;
  for (const int64_t size : *this) {
    if (size == 0) return 0;
    fits = fits && !__builtin_mul_overflow(count, size, &count);
  }
  if (!fits || count > kMaxElements) {
    fail(ErrorKind::memory, "a tensor of {} elements is more than any machine holds; use a smaller model or fewer rows",
         fmt::join(begin(), end(), " x "));
  }
  return count;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(begin(), end(), ", "));
}

}  // namespace quire
