#include "trainers/compare/run_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/check.h"

namespace quire {

namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

bool changes_a_result(const std::string& key) {
  static const std::set<std::string> kOthers{
      "run.seed",      "run.name",       "run.threads",     "run.max_wall_time",  "run.rank_timeout",
      "data.corpus",   "data.verify",    "data.accumulate", "data.vocabulary",    "evaluate.every",
      "evaluate.rows", "evaluate.split", "evaluate.tokens", "evaluate.documents", "evaluate.at_start"};
  return kOthers.count(key) == 0 && !key.starts_with("checkpoint.") && !key.starts_with("log.");
}

Settings settings_of(RunConfig config) {
  Settings settings;
  for (const ConfigSetting& setting : list_settings(StructRef<RunConfig>(config))) {
    if (changes_a_result(setting.key)) settings.emplace_back(setting.key, setting.value);
  }
  return settings;
}

// Returns what makes the results of a run, but its seed.
Settings settings_of(const ComparedRun& run) {
  Settings settings = settings_of(run.config);
  settings.emplace_back("checksum of data.corpus", run.evaluation.corpus);
  return settings;
}

// Runs that begin with the weights of runs of their own seed differ in the seed alone when those do: in the place of
// the path stand the settings of the origin.
void replace_origin(Settings& settings, const std::vector<RunConfig>& origins) {
  for (const RunConfig& origin : origins) {
    std::erase_if(settings, [](const auto& setting) { return setting.first == "init.from"; });
    for (auto& [key, value] : settings_of(origin)) {
      settings.emplace_back(key == "init.from" ? key : "init.from: " + key, value);
    }
  }
}

std::string letter_of(size_t number) {
  const std::string letter(1, static_cast<char>('A' + number % 26));
  return number < 26 ? letter : letter + std::to_string(number / 26);
}

std::string folder_of(const ComparedRun& run) {
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(run.path, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

// Returns what the folders' names have in common at their beginning, without a number, a separator or the word "seed"
// at its end: xl of xl-1 and xl-2.
std::string common_name(const RunGroup& group, const std::vector<ComparedRun>& runs) {
  std::string name = folder_of(runs[group.runs.front()]);
  if (group.runs.size() == 1) return name;
  for (const size_t number : group.runs) {
    const std::string other = folder_of(runs[number]);
    const auto end = std::mismatch(name.begin(), name.end(), other.begin(), other.end()).first;
    name.erase(end, name.end());
  }
  const auto trim = [&] { name.erase(name.find_last_not_of("-_. ") + 1); };
  name.erase(name.find_last_not_of("0123456789") + 1);  // 1 of run10 and run11
  trim();
  if (name.ends_with("seed") && name.size() > 4) name.resize(name.size() - 4);
  trim();
  return name;
}

// Gives every group a name of its own: the first of its variant in a sweep, run.name, the common part of its folders'
// names, and the path of its first run that names each group differently.
void name_groups(std::vector<RunGroup>& groups, const std::vector<ComparedRun>& runs) {
  const auto variant = [&](const RunGroup& group) { return runs[group.runs.front()].variant; };
  const auto run_name = [&](const RunGroup& group) {
    const std::string name = runs[group.runs.front()].config.run.name;
    const bool shared = std::all_of(group.runs.begin(), group.runs.end(),
                                    [&](size_t number) { return runs[number].config.run.name == name; });
    return shared ? name : std::string();
  };
  const auto folders = [&](const RunGroup& group) { return common_name(group, runs); };
  const auto path = [&](const RunGroup& group) { return runs[group.runs.front()].path; };
  const std::array<std::function<std::string(const RunGroup&)>, 4> ways{variant, run_name, folders, path};
  for (const auto& way : ways) {
    std::set<std::string> names;
    for (RunGroup& group : groups) {
      group.name = way(group);
      if (!group.name.empty()) names.insert(group.name);
    }
    if (names.size() == groups.size() && (groups.size() > 1 || &way != &ways[1])) return;
  }
}

}  // namespace

void require_same_results(const ComparedRun& kept, const RunConfig& config, const std::vector<RunConfig>& origins) {
  const auto all = [](const RunConfig& of, const std::vector<RunConfig>& its_origins) {
    Settings settings = settings_of(of);
    settings.emplace_back("data.corpus", of.data.corpus);
    replace_origin(settings, its_origins);
    for (const RunConfig& origin : its_origins) settings.emplace_back("init.from: data.corpus", origin.data.corpus);
    for (auto& [key, value] : settings) {
      if (key.ends_with("corpus")) value = std::filesystem::path(value).filename().string();
    }
    std::stable_sort(settings.begin(), settings.end());
    return settings;
  };
  const Settings before = all(kept.config, kept.origins);
  const Settings now = all(config, origins);
  const auto [of_kept, of_now] = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
  if (of_kept == before.end() && of_now == now.end()) return;
  const std::string& key = of_kept == before.end() ? of_now->first : of_kept->first;
  const auto shown = [&](const Settings& settings, Settings::const_iterator at) {
    return at != settings.end() && at->first == key ? at->second : "absent";
  };
  fail(ErrorKind::config, "{}: was trained with other settings than those of now: {} is {} there and {} now", kept.path,
       key, shown(before, of_kept), shown(now, of_now));
}

bool are_one_group(const RunConfig& a, const RunConfig& b) {
  return a.data.corpus == b.data.corpus && settings_of(a) == settings_of(b);
}

std::vector<RunGroup> group_runs(const std::vector<ComparedRun>& runs) {
  std::vector<RunGroup> groups;
  std::map<Settings, size_t> found;
  for (size_t number = 0; number < runs.size(); ++number) {
    Settings settings = settings_of(runs[number]);
    replace_origin(settings, runs[number].origins);
    const auto [place, is_new] = found.emplace(std::move(settings), groups.size());
    if (is_new) groups.push_back({letter_of(groups.size()), "", {}});
    groups[place->second].runs.push_back(number);
  }
  name_groups(groups, runs);
  return groups;
}

std::vector<DifferingKey> differing_keys(const std::vector<ComparedRun>& runs, const std::vector<RunGroup>& groups) {
  std::vector<DifferingKey> keys;
  std::map<std::string, size_t> places;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const auto& [key, value] : settings_of(runs[groups[group].runs.front()])) {
      const auto [place, is_new] = places.emplace(key, keys.size());
      if (is_new) keys.push_back({key, std::vector<std::string>(groups.size())});
      keys[place->second].values[group] = value;
    }
  }
  const auto is_shared = [](const DifferingKey& key) {
    return std::all_of(key.values.begin(), key.values.end(),
                       [&](const std::string& value) { return value == key.values.front(); });
  };
  keys.erase(std::remove_if(keys.begin(), keys.end(), is_shared), keys.end());
  return keys;
}

std::vector<int64_t> seeds_of(const RunGroup& group, const std::vector<ComparedRun>& runs) {
  std::vector<int64_t> seeds;
  for (const size_t number : group.runs) seeds.push_back(runs[number].seed());
  return seeds;
}

}  // namespace quire
