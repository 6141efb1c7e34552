// Element types of tensors in safetensors files, and how their values become those of quire.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace quire {

enum class StoredType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  f8_e4m3,
  f8_e5m2,
  boolean
};

// The name in a header, such as "BF16".
std::string_view name_of(StoredType type);
std::optional<StoredType> stored_type_named(std::string_view name);
int64_t size_of(StoredType type);

// Says whether weights may have this type.
bool holds_weights(StoredType type);

// Return the type in which a tensor of quire is stored bit for bit, and the tensor type of such a one.
StoredType stored_type_of(DType type);
std::optional<DType> dtype_of_stored(StoredType type);

// Returns the nearest half, ties to even; infinity for values beyond its range.
uint16_t half_of(float value);
float float_of_half(uint16_t bits);

}  // namespace quire
