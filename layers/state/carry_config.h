// Options for what a row carries: how much, where and in which number type. Mechanisms use these fields in a section
// `carry` and leave out those that they do not support.
#pragma once

#include "core/config/config.h"
#include "core/dtype.h"
#include "layers/state/log_place.h"

namespace quire {

enum class StateType { automatic, f32, bf16, int8, fp8 };

template <>
struct EnumNames<StateType> {
  static constexpr auto value = std::to_array<std::pair<StateType, std::string_view>>({{StateType::automatic, "auto"},
                                                                                       {StateType::f32, "f32"},
                                                                                       {StateType::bf16, "bf16"},
                                                                                       {StateType::int8, "int8"},
                                                                                       {StateType::fp8, "fp8"}});
};

// Returns the type that is stored; none: the one that the model computes in.
inline std::optional<DType> stored_type(StateType type) {
  switch (type) {
    case StateType::f32:
      return DType::f32;
    case StateType::bf16:
      return DType::bf16;
    case StateType::int8:
      return DType::i8;
    case StateType::fp8:
      return DType::f8;
    case StateType::automatic:
      break;
  }
  return std::nullopt;
}

// Says whether stored numbers are rounded, so that what is read depends on the step in which it was stored.
inline bool rounds(StateType type) {
  return type != StateType::automatic && type != StateType::f32;
}

// Options for carried blocks or chunks of tokens.
struct BlockCarry {
  int64_t length = 1280;
  LogPlace place = LogPlace::device;
  StateType dtype = StateType::automatic;

  // Holds the help texts that differ between mechanisms.
  struct Texts {
    std::string_view length;
    std::string_view unit;
    int64_t min = 1;
    std::string_view place;
    std::string_view inapplicable = {};
  };
  template <class Visitor>
  void fields(Visitor& v, const Texts& texts) {
    v.field("length", length,
            {.help = texts.length,
             .unit = texts.unit,
             .min = static_cast<double>(texts.min),
             .max = 1 << 26,
             .at_evaluation = true,
             .sizes_state = true,
             .inapplicable = texts.inapplicable});
    const std::string_view empty = length == 0 ? "with length: 0 nothing is stored" : texts.inapplicable;
    v.field("place", place, {.help = texts.place, .at_evaluation = true, .inapplicable = empty});
    v.field("dtype", dtype,
            {.help = "number type of stored keys and values; auto: the precision of the run. int8 and fp8 (E4M3) have "
                     "one scale per vector",
             .at_evaluation = true,
             .sizes_state = true,
             .inapplicable = empty});
  }
};

}  // namespace quire
