#include "trainers/exchange/stored_type.h"

#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace quire {

namespace {

struct Entry {
  StoredType type;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array kTypes{
    Entry{StoredType::f64, "F64", 8},         Entry{StoredType::f32, "F32", 4},
    Entry{StoredType::f16, "F16", 2},         Entry{StoredType::bf16, "BF16", 2},
    Entry{StoredType::i64, "I64", 8},         Entry{StoredType::i32, "I32", 4},
    Entry{StoredType::i16, "I16", 2},         Entry{StoredType::i8, "I8", 1},
    Entry{StoredType::u64, "U64", 8},         Entry{StoredType::u32, "U32", 4},
    Entry{StoredType::u16, "U16", 2},         Entry{StoredType::u8, "U8", 1},
    Entry{StoredType::f8_e4m3, "F8_E4M3", 1}, Entry{StoredType::f8_e5m2, "F8_E5M2", 1},
    Entry{StoredType::boolean, "BOOL", 1},
};

constexpr std::array kSame{
    std::pair{DType::f64, StoredType::f64},   std::pair{DType::f32, StoredType::f32},
    std::pair{DType::bf16, StoredType::bf16}, std::pair{DType::i64, StoredType::i64},
    std::pair{DType::i32, StoredType::i32},   std::pair{DType::u16, StoredType::u16},
    std::pair{DType::i8, StoredType::i8},     std::pair{DType::f8, StoredType::f8_e4m3},
    std::pair{DType::u8, StoredType::u8},
};

}  // namespace

std::string_view name_of(StoredType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

std::optional<StoredType> stored_type_named(std::string_view name) {
  for (const Entry& entry : kTypes) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

int64_t size_of(StoredType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

bool holds_weights(StoredType type) {
  return type == StoredType::f64 || type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16;
}

StoredType stored_type_of(DType type) {
  for (const auto& [own, stored] : kSame) {
    if (own == type) return stored;
  }
  return StoredType::u8;
}

std::optional<DType> dtype_of_stored(StoredType type) {
  for (const auto& [own, stored] : kSame) {
    if (stored == type) return own;
  }
  return std::nullopt;
}

float float_of_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t fraction = bits & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
  if (exponent == 0) {
    const float small = static_cast<float>(fraction) * 0x1p-24F;  // exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t half_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
  if (size >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // 65520 rounds to infinity
  if (size < 0x38800000U) {                                               // below 2^-14 steps are 2^-24
    const float steps = std::nearbyint(std::bit_cast<float>(size) * 0x1p24F);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(steps));
  }
  const uint32_t rounded = size - 0x38000000U + 0xfffU + ((size >> 13) & 1U);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

}  // namespace quire
