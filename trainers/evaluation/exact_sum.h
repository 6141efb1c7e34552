// A sum of losses that does not depend on the order of its terms: parts in any grouping add up to the same total.
#pragma once

#include <cmath>
#include <limits>

namespace quire {

// A fixed-point number with 2^-64 as the unit: an f32 above 2^-40 is represented exactly, and 2^23 values of the
// largest size fit.
class ExactSum {
 public:
  void add(double value) {
    constexpr double kLargest = 0x1p40;  // a value above this, or NaN, makes the sum infinite
    if (!(std::abs(value) < kLargest)) {
      overflow_ = true;
      return;
    }
    add_units(static_cast<__int128>(std::ldexp(value, kBits)));
  }
  void add(const ExactSum& other) {
    overflow_ = overflow_ || other.overflow_;
    add_units(other.units_);
  }
  double value() const {
    return overflow_ ? std::numeric_limits<double>::infinity() : std::ldexp(static_cast<double>(units_), -kBits);
  }
  bool operator==(const ExactSum&) const = default;

 private:
  static constexpr int kBits = 64;
  void add_units(__int128 units) { overflow_ = __builtin_add_overflow(units_, units, &units_) || overflow_; }

  __int128 units_ = 0;
  bool overflow_ = false;
};

}  // namespace quire
