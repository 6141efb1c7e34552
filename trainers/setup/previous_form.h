// Configurations of the previous version of quire, whose keys have other names now (previous_keys.h). The next version
// no longer reads them: this file, its sources and the table go then.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainers/setup/config.h"

namespace quire {

struct UpgradedText {
  std::string text;                  // with the layout and the comments of the one before
  std::vector<std::string> changes;  // a line for each
};
// Returns the text with the keys of this version; nothing when it has no key of the previous one. Error(config) for
// what cannot be converted.
std::optional<UpgradedText> upgraded_configuration(const std::string& text, const std::string& name);

// Returns the configuration of a run or checkpoint that this version of quire or the previous one wrote. Relative paths
// are resolved against `folder`; where that is empty they stay as they are.
RunConfig read_written_config(const std::string& text, const std::string& name, const std::string& folder = "");

}  // namespace quire
