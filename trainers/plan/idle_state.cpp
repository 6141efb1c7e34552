#include "trainers/plan/idle_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "layers/model/model_mechanisms.h"
#include "trainers/plan/longest_document.h"

namespace quire {

namespace {

std::optional<int64_t> length_of(const ConfigSetting& setting) {
  int64_t length = 0;
  const char* const end = setting.value.data() + setting.value.size();
  const auto read = std::from_chars(setting.value.data(), end, length);
  const bool is_length = setting.sizes_state && setting.key.ends_with("carry.length") && read.ptr == end;
  return is_length && read.ec == std::errc() ? std::optional(length) : std::nullopt;
}

}  // namespace

std::vector<std::string> describe_idle_state(const RunConfig& config, const StateLayout& layout, Corpus& corpus) {
  if (!config.data.mix.empty() || config.data.sampling != Sampling::documents) return {};
  const Insertion insertion = insertion_of(config.model);
  const int64_t longest = longest_document(config, corpus);
  const int64_t positions = insertion.positions(longest + 1);  // with BOS
  std::vector<std::string> lines;
  RunConfig listed = config;
  for (const ConfigSetting& setting : list_settings(StructRef<RunConfig>(listed))) {
    const std::optional<int64_t> length = length_of(setting);
    // The group of logs that has this length; of several, the one that holds most.
    int64_t grain = 0;
    for (const StateLayout::LogGroup& group : layout.log_groups()) {
      if (length && group.length == *length) grain = std::max(grain, group.options.grain);
    }
    if (grain == 0 || *length / 2 <= positions / grain) continue;
    const int64_t tokens = *length > INT64_MAX / grain ? INT64_MAX : insertion.tokens_before(*length * grain);
    const std::string entries = grain == 1 ? "hold as many tokens" : fmt::format("hold {} tokens", tokens);
    lines.push_back(fmt::format("{}: {} entries {}, and the longest document has {}: {} are enough for it", setting.key,
                                *length, entries, longest, (positions + grain - 1) / grain));
  }
  return lines;
}

}  // namespace quire
