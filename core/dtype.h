// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

enum class DType : uint8_t { f64, f32, bf16, i64, i32, u16, i8, f8, u8 };

constexpr size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::u16:
      return 2;
    case DType::i8:
    case DType::f8:
    case DType::u8:
      return 1;
  }
  return 0;
}

const char* name_of(DType type);
// Returns the type of gains, biases, statistics, losses and parameter gradients that belong to values of a type: f32
// for bf16, otherwise the type itself.
constexpr DType wide_type(DType type) {
  return type == DType::bf16 ? DType::f32 : type;
}
// Returns true for types that operations compute with; f8 (core/float8.h) is for storage only.
constexpr bool is_floating(DType type) {
  return type == DType::f64 || type == DType::f32 || type == DType::bf16;
}

// dtype_of<float>() == DType::f32. On the CPU bf16 is for storage only and has its own struct in core/bfloat16.h.
template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return DType::u16;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::i8;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}

}  // namespace quire
