// The values of the keys of a run's configuration that name a choice.
#pragma once

#include <array>

#include "core/config/config.h"

namespace quire {

enum class DeviceChoice { automatic, cpu, cuda };
enum class Precision { automatic, f32, f64, bf16 };
enum class NonfinitePolicy { stop, skip };
enum class CheckpointErrorPolicy { stop, warn };

template <>
struct EnumNames<DeviceChoice> {
  static constexpr auto value = std::to_array<std::pair<DeviceChoice, std::string_view>>(
      {{DeviceChoice::automatic, "auto"}, {DeviceChoice::cpu, "cpu"}, {DeviceChoice::cuda, "cuda"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a GPU when there is one, else the CPU", "the cores of this machine", "one NVIDIA GPU"});
  static constexpr auto meant =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"gpu", "cuda"}, {"nvidia", "cuda"}});
};
template <>
struct EnumNames<Precision> {
  static constexpr auto value = std::to_array<std::pair<Precision, std::string_view>>(
      {{Precision::automatic, "auto"}, {Precision::f32, "f32"}, {Precision::f64, "f64"}, {Precision::bf16, "bf16"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"f32 on the CPU, bf16 on a GPU", "32 bits", "64 bits, for checks on the CPU", "GPU only"});
};
template <>
struct EnumNames<NonfinitePolicy> {
  static constexpr auto value = std::to_array<std::pair<NonfinitePolicy, std::string_view>>(
      {{NonfinitePolicy::stop, "stop"}, {NonfinitePolicy::skip, "skip"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the run ends with exit code 5",
       "the step changes no weight, rows with such a loss begin with empty state, and the run goes on"});
};
template <>
struct EnumNames<CheckpointErrorPolicy> {
  static constexpr auto value = std::to_array<std::pair<CheckpointErrorPolicy, std::string_view>>(
      {{CheckpointErrorPolicy::stop, "stop"}, {CheckpointErrorPolicy::warn, "warn"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the run ends with exit code 7",
       "a warning, and the run goes on; for the last checkpoint the run ends with exit code 7"});
};

}  // namespace quire
