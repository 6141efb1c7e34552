#include "trainers/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "trainers/checkpoint/checkpoint.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kInName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

bool is_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.front() != '-' &&
         name.find_first_not_of(kInName) == std::string::npos;
}

// Returns whether a setting gives a value to SECTION.NAME, also by SECTION={NAME: ...}.
bool gives(const std::string& setting, const std::string& section, const std::string& name) {
  const std::string key = setting.substr(0, setting.find('='));
  if (key != section) return key == join_key(section, name);
  ConfigNode root = ConfigNode::map();
  apply_override(root, setting);
  return root.at(join_key(section, name)) != nullptr;
}

// Returns why a run of the sweep would not use one of the settings; empty: it uses all.
std::string ignored_setting(const std::vector<std::string>& settings, bool has_from) {
  for (const std::string& setting : settings) {
    if (gives(setting, "run", "seed")) return setting + ": a run has one of `seeds` of the sweep; change them";
    if (has_from && gives(setting, "init", "from")) {
      return setting + ": the run begins with the weights of `from` of the variant; leave one of them out";
    }
  }
  return "";
}

}  // namespace

void SweepConfig::check(ConfigChecker& c) const {
  c.require(!variants.empty(), "variants", "a sweep needs at least one variant, as in [{name: base}]");
  c.require(!seeds.empty(), "seeds", "a sweep needs at least one seed");
  for (size_t i = 0; i < seeds.size(); ++i) {
    c.require(std::count(seeds.begin(), seeds.end(), seeds[i]) == 1, "seeds",
              fmt::format("{} stands there twice", seeds[i]));
  }
  c.require(ignored_setting(set, false).empty(), "set", ignored_setting(set, false));
  std::vector<std::string> before;
  for (size_t i = 0; i < variants.size(); ++i) {
    const SweepVariant& variant = variants[i];
    const std::string key = fmt::format("variants.{}.", i);
    const auto is_before = [&](const std::string& name) {
      return std::find(before.begin(), before.end(), name) != before.end();
    };
    c.require(is_name(variant.name), key + "name",
              fmt::format("'{}' cannot be the name of a folder; use letters, digits, '.', '_' and '-'", variant.name));
    c.require(!is_before(variant.name), key + "name", fmt::format("there are two variants {}", variant.name));
    c.require(!variant.from || is_before(*variant.from), key + "from",
              fmt::format("there is no variant {} before this one", variant.from.value_or("")));
    const std::string ignored = ignored_setting(variant.set, variant.from.has_value());
    c.require(ignored.empty(), key + "set", ignored);
    before.push_back(variant.name);
  }
  const auto is_compared = [&](const std::string& name) {
    return std::any_of(variants.begin(), variants.end(),
                       [&](const SweepVariant& variant) { return variant.compared && variant.name == name; });
  };
  for (size_t i = 0; i < variants.size(); ++i) {
    const SweepVariant& variant = variants[i];
    c.require(!variant.beside || (variant.compared && variant.beside != variant.name && is_compared(*variant.beside)),
              fmt::format("variants.{}.beside", i),
              fmt::format("there is no other compared variant {}", variant.beside.value_or("")));
  }
  c.require(!baseline || is_compared(*baseline), "baseline",
            fmt::format("there is no compared variant {}", baseline.value_or("")));
  c.require(std::any_of(variants.begin(), variants.end(), [](const SweepVariant& variant) { return variant.compared; }),
            "variants", "none of them is compared");
}

const SweepVariant& SweepConfig::baseline_variant() const {
  return *std::find_if(variants.begin(), variants.end(), [&](const SweepVariant& variant) {
    return baseline ? variant.name == *baseline : variant.compared;
  });
}

std::vector<SweepRun> runs_of(const SweepConfig& sweep, const fs::path& folder, const std::vector<std::string>& more) {
  const bool has_from = std::any_of(sweep.variants.begin(), sweep.variants.end(),
                                    [](const SweepVariant& variant) { return variant.from.has_value(); });
  const std::string ignored = ignored_setting(more, has_from);
  if (!ignored.empty()) fail(ErrorKind::config, "command line: {}", ignored);
  std::vector<SweepRun> runs;
  for (const int64_t seed : sweep.seeds) {
    const auto folder_of = [&](const std::string& variant) { return folder / fmt::format("{}-{}", variant, seed); };
    for (const SweepVariant& variant : sweep.variants) {
      SweepRun run;
      run.variant = variant.name;
      run.seed = seed;
      run.config = variant.config.value_or(sweep.config);
      run.folder = folder_of(variant.name);
      for (const std::vector<std::string>* settings : {&sweep.set, &variant.set, &more}) {
        run.overrides.insert(run.overrides.end(), settings->begin(), settings->end());
      }
      run.overrides.push_back(fmt::format("run.seed={}", seed));
      run.own_overrides = run.overrides;
      if (variant.from) {
        run.origin = folder_of(*variant.from);
        run.overrides.push_back("init.from=" + run.origin.string());
        std::erase_if(run.own_overrides, [](const std::string& setting) {
          return setting.starts_with("init.") || setting.starts_with("init=");
        });
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

bool is_trained(const SweepRun& run, int64_t steps) {
  if (!fs::exists(run.folder)) return false;
  if (!fs::is_regular_file(run.folder / "config.yaml")) {
    fail(ErrorKind::config, "{}: is there and is no run; remove it, or choose another --run-dir", run.folder.string());
  }
  const std::vector<int64_t> saved = checkpoint_steps(run.folder / "checkpoints");
  return !saved.empty() && saved.front() >= steps;  // the newest comes first
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kAlsoSafe = "=/:,+@%";
  const bool is_safe = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return kInName.find(c) != std::string_view::npos || kAlsoSafe.find(c) != std::string_view::npos;
  });
  if (is_safe) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace quire
