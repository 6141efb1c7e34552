// config.json of a folder in Hugging Face layout, read key by key. Every error is Error(data) that names file and key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class HfConfig {
 public:
  static HfConfig read(const std::filesystem::path& file);
  HfConfig(nlohmann::json json, std::string name);

  // A key that is absent and one that is null mean the same: the default.
  bool has(const std::string& key) const;
  bool is_null(const std::string& key) const;  // the key is there, and its value is null
  // Each of these counts as a use of the key (require_known).
  const nlohmann::json* find(const std::string& key);  // nullptr: the default
  std::optional<int64_t> integer(const std::string& key, int64_t min = 0, int64_t max = int64_t{1} << 40);
  int64_t required_integer(const std::string& key, int64_t min = 1, int64_t max = int64_t{1} << 40);
  std::optional<double> number(const std::string& key, double above = -std::numeric_limits<double>::infinity());
  bool flag(const std::string& key, bool otherwise);
  std::optional<std::string> text(const std::string& key);
  std::optional<std::vector<std::string>> texts(const std::string& key);
  std::optional<std::vector<int64_t>> integers(const std::string& key);

  // Throws an error that says why the value of the key cannot be imported.
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  // Throws for a key with a value other than false, 0, null or empty that no one has used, unless it is known to change
  // nothing or stands in `ignored`: it may belong to another architecture.
  void require_known(const std::vector<std::string>& ignored) const;

  const std::string& name() const { return name_; }

 private:
  nlohmann::json json_;
  std::string name_;
  std::set<std::string> used_;
};

// Says whether a value is what a feature that is not in use has: null, false, 0 or empty.
bool is_neutral(const nlohmann::json& value);
// The value as a message shows it.
std::string shown(const nlohmann::json& value);

}  // namespace quire
