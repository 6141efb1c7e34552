// Where a log lies, as a choice of the configuration.
#pragma once

#include "core/config/config.h"
#include "layers/state/state_layout.h"

namespace quire {

template <>
struct EnumNames<LogPlace> {
  static constexpr auto value = std::to_array<std::pair<LogPlace, std::string_view>>(
      {{LogPlace::device, "device"}, {LogPlace::host, "host"}, {LogPlace::file, "file"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"on the device of the model", "pinned memory of the host, which the GPU reads in place",
       "a memory-mapped file without a name in the run directory; CPU only"});
};

}  // namespace quire
