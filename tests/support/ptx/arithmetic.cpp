// Instructions on registers.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "core/bfloat16.h"
#include "tests/support/ptx/machine.h"

namespace quire::ptx {

namespace {

using Table = std::unordered_map<std::string, Run>;

template <typename Function, typename To, typename... From, size_t... n>
void apply_at(Warp& warp, const Instruction& i, uint32_t lanes, std::index_sequence<n...>) {
  To* const to = lanes_of<To>(warp, i.operands[0]);
  const std::tuple<const From*...> from{lanes_of<From>(warp, i.operands[n + 1])...};
  if (lanes == kAll) {
    for (int lane = 0; lane < kLanes; ++lane) to[lane] = Function()(std::get<n>(from)[lane]...);
    return;
  }
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    to[lane] = Function()(std::get<n>(from)[lane]...);
  }
}
template <typename Function, typename To, typename... From>
void apply(Warp& warp, const Instruction& i, uint32_t lanes) {
  apply_at<Function, To, From...>(warp, i, lanes, std::index_sequence_for<From...>());
}

void set_predicate(Warp& warp, int32_t place, uint32_t lanes, uint32_t bits) {
  uint32_t& to = predicate(warp, place);
  to = (to & ~lanes) | (bits & lanes);
}

template <typename Function, typename T>
void compare(Warp& warp, const Instruction& i, uint32_t lanes) {
  const T* const a = lanes_of<T>(warp, i.operands[1]);
  const T* const b = lanes_of<T>(warp, i.operands[2]);
  uint32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= static_cast<uint32_t>(Function()(a[lane], b[lane])) << lane;
  set_predicate(warp, i.operands[0], lanes, bits);
}

template <typename T>
void select(Warp& warp, const Instruction& i, uint32_t lanes) {
  T* const to = lanes_of<T>(warp, i.operands[0]);
  const T* const a = lanes_of<T>(warp, i.operands[1]);
  const T* const b = lanes_of<T>(warp, i.operands[2]);
  const uint32_t which = predicate(warp, i.operands[3]);
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    to[lane] = (which >> lane & 1) != 0 ? a[lane] : b[lane];
  }
}

template <typename Function>
void on_predicates(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t a = predicate(warp, i.operands[1]);
  const uint32_t b = i.operands.size() > 2 ? predicate(warp, i.operands[2]) : 0;
  set_predicate(warp, i.operands[0], lanes, Function()(a, b));
}

struct Same {
  template <typename T>
  T operator()(T a) const {
    return a;
  }
};
struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Subtract {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a - b);
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, uint16_t>) return static_cast<T>(uint32_t{a} * b);
    return static_cast<T>(a * b);
  }
};
struct MultiplyAdd {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(a * b + c);
  }
};
template <typename To>
struct MultiplyWide {
  template <typename T>
  To operator()(T a, T b) const {
    return static_cast<To>(a) * static_cast<To>(b);
  }
};
template <typename Wide>
struct MultiplyHigh {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
  }
};
struct Fused {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
// A division by zero sets all bits, as on a GPU.
struct Divide {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return static_cast<T>(-1);
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return static_cast<T>(-static_cast<std::make_unsigned_t<T>>(a));
      }
    }
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct Negate {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(-a);
  }
};
struct Absolute {
  template <typename T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct CopySign {  // a is the sign
  template <typename T>
  T operator()(T a, T b) const {
    return std::copysign(b, a);
  }
};
struct Smallest {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
    return a < b ? a : b;
  }
};
struct Largest {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
    return a > b ? a : b;
  }
};
struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
  template <typename T>
  T operator()(T a, T) const {
    return static_cast<T>(~a);
  }
};
struct First {
  template <typename T>
  T operator()(T a, T) const {
    return a;
  }
};
struct ShiftLeft {
  template <typename T>
  T operator()(T a, uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
  }
};
struct ShiftRight {
  template <typename T>
  T operator()(T a, uint32_t by) const {
    if (by >= 8 * sizeof(T)) return a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
  }
};
struct SquareRoot {
  template <typename T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <typename T>
  T operator()(T a) const {
    return 1 / a;
  }
};
float flushed(float a) {
  return std::fabs(a) < std::numeric_limits<float>::min() ? std::copysign(0.0F, a) : a;
}
struct ReciprocalFlushed {
  float operator()(float a) const { return flushed(1 / flushed(a)); }
  // A seed: its lower word is zero.
  double operator()(double a) const {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / a) & 0xffffffff00000000U);
  }
};
struct PowerOfTwo {
  float operator()(float a) const { return std::exp2(a); }
};
struct PowerOfTwoFlushed {
  float operator()(float a) const { return flushed(std::exp2(flushed(a))); }
};
struct Popcount {
  uint32_t operator()(uint32_t a) const { return static_cast<uint32_t>(std::popcount(a)); }
};
struct LeadingZeros {
  template <typename T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Reverse {
  uint32_t operator()(uint32_t a) const {
    uint32_t b = 0;
    for (int n = 0; n < 32; ++n) b |= (a >> n & 1) << (31 - n);
    return b;
  }
};
// The shift that would bring the highest set bit to the top.
struct FindShift {
  uint32_t operator()(uint32_t a) const { return a == 0 ? kAll : static_cast<uint32_t>(std::countl_zero(a)); }
};
struct BitMask {  // `width` bits from `first` on
  uint32_t operator()(uint32_t first, uint32_t width) const {
    if (first >= 32) return 0;
    return (width >= 32 ? kAll : (1U << width) - 1) << first;
  }
};
struct BitInsert {
  uint64_t operator()(uint64_t from, uint64_t into, uint32_t first, uint32_t width) const {
    first &= 0xff;
    width &= 0xff;
    if (first >= 64 || width == 0) return into;
    const uint64_t mask = (width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1) << first;
    return (into & ~mask) | (from << first & mask);
  }
};
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t both = uint64_t{b} << 32 | a;
    uint32_t to = 0;
    for (unsigned n = 0; n < 4; ++n) {
      const uint32_t which = selector >> (4 * n) & 0xf;
      uint32_t byte = static_cast<uint32_t>(both >> (8 * (which & 7))) & 0xff;
      if ((which & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      to |= byte << (8 * n);
    }
    return to;
  }
};
// Two bf16, the first operand in the upper half.
struct ToPair {
  uint32_t operator()(float upper, float lower) const {
    return uint32_t{bfloat16(upper).bits} << 16 | bfloat16(lower).bits;
  }
};

// Floating-point to integer: what is too large is the largest, not-a-number is zero.
template <typename To, typename From>
To to_integer(From a) {
  if (a != a) return 0;
  if (a <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (a >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(a);
}
template <typename To, bool kNearest>
struct ToInteger {
  template <typename T>
  To operator()(T a) const {
    return to_integer<To>(kNearest ? std::nearbyint(a) : std::trunc(a));
  }
};
template <bool kNearest>
struct Integral {
  template <typename T>
  T operator()(T a) const {
    return kNearest ? std::nearbyint(a) : std::trunc(a);
  }
};
template <typename To>
struct Convert {
  template <typename T>
  To operator()(T a) const {
    return static_cast<To>(a);
  }
};
struct Saturate {  // not-a-number becomes zero
  float operator()(float a) const { return a > 0 ? std::fmin(a, 1.0F) : 0.0F; }
};
struct SignOfByte {
  uint16_t operator()(uint16_t a) const { return static_cast<uint16_t>(static_cast<int8_t>(a)); }
};

struct Less {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <typename T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <typename T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <typename T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct Equal {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {  // for numbers
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct NotANumber {
  template <typename T>
  bool operator()(T a, T b) const {
    return a != a || b != b;
  }
};
template <typename Function>
struct Negated {
  template <typename T>
  bool operator()(T a, T b) const {
    return !Function()(a, b);
  }
};

// The product's sums are computed with all bits, and rounded down.
void fused_down(Warp& warp, const Instruction& i, uint32_t lanes) {
  const int before = std::fegetround();
  std::fesetround(FE_DOWNWARD);
  float* const to = lanes_of<float>(warp, i.operands[0]);
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    volatile float a = lanes_of<float>(warp, i.operands[1])[lane];
    volatile float b = lanes_of<float>(warp, i.operands[2])[lane];
    volatile float c = lanes_of<float>(warp, i.operands[3])[lane];
    volatile float sum = std::fma(a, b, c);
    to[lane] = sum;
  }
  std::fesetround(before);
}

// variant: Carry. Of a product a half is added to.
template <bool kProduct>
void with_carry(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t* const to = lanes_of<uint32_t>(warp, i.operands[0]);
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const uint64_t a = lanes_of<uint32_t>(warp, i.operands[1])[lane];
    const uint64_t b = lanes_of<uint32_t>(warp, i.operands[2])[lane];
    const uint64_t carried = (i.variant & kCarryRead) != 0 ? uint64_t{warp.carry >> lane & 1} : uint64_t{0};
    uint64_t sum = 0;
    if constexpr (kProduct) {
      const uint64_t c = lanes_of<uint32_t>(warp, i.operands[3])[lane];
      sum = ((i.variant & kUpperHalf) != 0 ? a * b >> 32 : (a * b & kAll)) + c + carried;
    } else {
      sum = (i.variant & kDifference) != 0 ? a - b - carried : a + b + carried;
    }
    to[lane] = static_cast<uint32_t>(sum);
    if ((i.variant & kCarryWritten) != 0)
      warp.carry = (warp.carry & ~(1U << lane)) | (static_cast<uint32_t>(sum >> 32 & 1) << lane);
  }
}

// Adds the operations that numbers of all kinds have.
template <typename T>
void add_order(Table& table, const std::string& type) {
  table["min." + type] = apply<Smallest, T, T, T>;
  table["max." + type] = apply<Largest, T, T, T>;
  table["setp.lt." + type] = compare<Less, T>;
  table["setp.le." + type] = compare<LessEqual, T>;
  table["setp.gt." + type] = compare<Greater, T>;
  table["setp.ge." + type] = compare<GreaterEqual, T>;
  table["setp.eq." + type] = compare<Equal, T>;
  table["setp.ne." + type] = compare<NotEqual, T>;
}

template <typename T>
void add_float(Table& table, const std::string& type) {
  for (const char* rounding : {"", ".rn"}) {
    table["add" + std::string(rounding) + "." + type] = apply<Add, T, T, T>;
    table["sub" + std::string(rounding) + "." + type] = apply<Subtract, T, T, T>;
    table["mul" + std::string(rounding) + "." + type] = apply<Multiply, T, T, T>;
  }
  table["fma.rn." + type] = apply<Fused, T, T, T, T>;
  table["div.rn." + type] = apply<Divide, T, T, T>;
  table["rcp.rn." + type] = apply<Reciprocal, T, T>;
  table["rcp.approx.ftz." + type] = apply<ReciprocalFlushed, T, T>;
  table["sqrt.rn." + type] = apply<SquareRoot, T, T>;
  table["neg." + type] = apply<Negate, T, T>;
  table["abs." + type] = apply<Absolute, T, T>;
  table["copysign." + type] = apply<CopySign, T, T, T>;
  add_order<T>(table, type);
  table["setp.nan." + type] = compare<NotANumber, T>;
  table["setp.num." + type] = compare<Negated<NotANumber>, T>;
  table["setp.ltu." + type] = compare<Negated<GreaterEqual>, T>;
  table["setp.leu." + type] = compare<Negated<Greater>, T>;
  table["setp.gtu." + type] = compare<Negated<LessEqual>, T>;
  table["setp.geu." + type] = compare<Negated<Less>, T>;
  table["setp.equ." + type] = compare<Negated<NotEqual>, T>;
  table["setp.neu." + type] = compare<Negated<Equal>, T>;
}

template <typename T>
void add_integer(Table& table, const std::string& type) {
  using U = std::make_unsigned_t<T>;
  table["add." + type] = apply<Add, U, U, U>;
  table["sub." + type] = apply<Subtract, U, U, U>;
  table["mul.lo." + type] = apply<Multiply, U, U, U>;
  if constexpr (sizeof(T) > 2) table["mad.lo." + type] = apply<MultiplyAdd, U, U, U, U>;
  table["div." + type] = apply<Divide, T, T, T>;
  table["rem." + type] = apply<Remainder, T, T, T>;
  table["neg." + type] = apply<Negate, U, U>;
  table["shr." + type] = apply<ShiftRight, T, T, uint32_t>;
  add_order<T>(table, type);
}

template <typename U>
void add_bits(Table& table, const std::string& bits) {
  const std::string type = ".b" + bits;
  table["and" + type] = apply<And, U, U, U>;
  table["or" + type] = apply<Or, U, U, U>;
  table["xor" + type] = apply<Xor, U, U, U>;
  table["not" + type] = apply<Not, U, U>;
  table["shl" + type] = apply<ShiftLeft, U, U, uint32_t>;
  table["shr" + type] = apply<ShiftRight, U, U, uint32_t>;
  table["setp.eq" + type] = compare<Equal, U>;
  table["setp.ne" + type] = compare<NotEqual, U>;
  for (const char* kind : {".b", ".u", ".s", ".f"}) {
    table["mov" + (kind + bits)] = apply<Same, U, U>;
    table["selp" + (kind + bits)] = select<U>;
  }
}

Table all_instructions() {
  Table table;
  add_float<float>(table, "f32");
  add_float<double>(table, "f64");
  add_integer<uint16_t>(table, "u16");
  add_integer<int16_t>(table, "s16");
  add_integer<uint32_t>(table, "u32");
  add_integer<int32_t>(table, "s32");
  add_integer<uint64_t>(table, "u64");
  add_integer<int64_t>(table, "s64");
  add_bits<uint16_t>(table, "16");
  add_bits<uint32_t>(table, "32");
  add_bits<uint64_t>(table, "64");
  table["mul.wide.s32"] = apply<MultiplyWide<int64_t>, int64_t, int32_t, int32_t>;
  table["mul.wide.u32"] = apply<MultiplyWide<uint64_t>, uint64_t, uint32_t, uint32_t>;
  table["mul.hi.s32"] = apply<MultiplyHigh<int64_t>, int32_t, int32_t, int32_t>;
  table["mul.hi.u32"] = apply<MultiplyHigh<uint64_t>, uint32_t, uint32_t, uint32_t>;
  table["fma.rm.f32"] = fused_down;
  table["ex2.approx.f32"] = apply<PowerOfTwo, float, float>;
  table["ex2.approx.ftz.f32"] = apply<PowerOfTwoFlushed, float, float>;
  table["popc.b32"] = apply<Popcount, uint32_t, uint32_t>;
  table["clz.b32"] = apply<LeadingZeros, uint32_t, uint32_t>;
  table["clz.b64"] = apply<LeadingZeros, uint32_t, uint64_t>;
  table["brev.b32"] = apply<Reverse, uint32_t, uint32_t>;
  table["bfind.shiftamt.u32"] = apply<FindShift, uint32_t, uint32_t>;
  table["bmsk.clamp.b32"] = apply<BitMask, uint32_t, uint32_t, uint32_t>;
  table["bfi.b64"] = apply<BitInsert, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>;
  table["prmt.b32"] = apply<Permute, uint32_t, uint32_t, uint32_t, uint32_t>;
  table["and.pred"] = on_predicates<And>;
  table["or.pred"] = on_predicates<Or>;
  table["xor.pred"] = on_predicates<Xor>;
  table["not.pred"] = on_predicates<Not>;
  table["mov.pred"] = on_predicates<First>;

  table["cvt.s64.s32"] = apply<Convert<int64_t>, int64_t, int32_t>;
  table["cvt.u64.u32"] = apply<Convert<uint64_t>, uint64_t, uint32_t>;
  table["cvt.u32.u64"] = apply<Convert<uint32_t>, uint32_t, uint64_t>;
  table["cvt.u32.u16"] = apply<Convert<uint32_t>, uint32_t, uint16_t>;
  table["cvt.s32.s16"] = apply<Convert<int32_t>, int32_t, int16_t>;
  table["cvt.u16.u32"] = apply<Convert<uint16_t>, uint16_t, uint32_t>;
  table["cvt.u16.u64"] = apply<Convert<uint16_t>, uint16_t, uint64_t>;
  table["cvt.s16.s8"] = apply<SignOfByte, uint16_t, uint16_t>;
  table["cvt.rn.f32.s16"] = apply<Convert<float>, float, int16_t>;
  table["cvt.rn.f32.u16"] = apply<Convert<float>, float, uint16_t>;
  table["cvt.rn.f32.s32"] = apply<Convert<float>, float, int32_t>;
  table["cvt.rn.f32.u32"] = apply<Convert<float>, float, uint32_t>;
  table["cvt.rn.f32.s64"] = apply<Convert<float>, float, int64_t>;
  table["cvt.rn.f32.f64"] = apply<Convert<float>, float, double>;
  table["cvt.rn.f64.s16"] = apply<Convert<double>, double, int16_t>;
  table["cvt.rn.f64.s32"] = apply<Convert<double>, double, int32_t>;
  table["cvt.rn.f64.u32"] = apply<Convert<double>, double, uint32_t>;
  table["cvt.rn.f64.s64"] = apply<Convert<double>, double, int64_t>;
  table["cvt.f64.f32"] = apply<Convert<double>, double, float>;
  table["cvt.rni.f32.f32"] = apply<Integral<true>, float, float>;
  table["cvt.rni.f64.f64"] = apply<Integral<true>, double, double>;
  table["cvt.rzi.f64.f64"] = apply<Integral<false>, double, double>;
  table["cvt.rzi.u64.f64"] = apply<ToInteger<uint64_t, false>, uint64_t, double>;
  table["cvt.rzi.s32.f64"] = apply<ToInteger<int32_t, false>, int32_t, double>;
  table["cvt.rni.s32.f64"] = apply<ToInteger<int32_t, true>, int32_t, double>;
  table["cvt.sat.f32.f32"] = apply<Saturate, float, float>;
  table["cvt.rn.bf16x2.f32"] = apply<ToPair, uint32_t, float, float>;

  for (const char* name : {"add.cc.u32", "addc.u32", "addc.cc.u32", "sub.cc.u32", "subc.u32", "subc.cc.u32"}) {
    table[name] = with_carry<false>;
  }
  for (const char* name : {"mad.lo.cc.u32", "madc.lo.cc.u32", "madc.hi.u32", "madc.hi.cc.u32"}) {
    table[name] = with_carry<true>;
  }
  return table;
}

}  // namespace

Run arithmetic(const std::string& name) {
  static const Table table = all_instructions();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

void run_nothing(Warp&, const Instruction&, uint32_t) {}

}  // namespace quire::ptx
