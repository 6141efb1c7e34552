#include "layers/state/state_layout.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

RegisterId StateLayout::add_register(const std::string& name, const Shape& shape, const RegisterOptions& options) {
  QUIRE_CHECK(!options.wide || !options.dtype, "state {}: a type and wide contradict each other; give one", name);
  registers_.push_back({name, shape, options});
  return {static_cast<int>(registers_.size()) - 1};
}

LogGroupId StateLayout::add_log_group(const std::string& name, int64_t length, const LogGroupOptions& options) {
  QUIRE_CHECK(length > 0, "state {}: length {}", name, length);
  QUIRE_CHECK(options.grain > 0, "state {}: {} tokens per entry", name, options.grain);
  groups_.push_back({name, length, options});
  return {static_cast<int>(groups_.size()) - 1};
}

LogId StateLayout::add_log(LogGroupId group, const std::string& name, const Shape& entry, std::optional<DType> dtype) {
  const std::string& prefix = groups_.at(static_cast<size_t>(group.index)).name;
  logs_.push_back({prefix.empty() ? name : prefix + "." + name, group, entry, dtype});
  return {static_cast<int>(logs_.size()) - 1, group};
}

std::string StateLayout::first_in_file() const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [](const LogGroup& group) { return group.options.place == LogPlace::file; });
  return found == groups_.end() ? "" : found->name;
}

}  // namespace quire
