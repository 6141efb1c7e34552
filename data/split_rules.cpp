#include "data/split_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include "core/check.h"
#include "core/random.h"

namespace quire {

namespace {

constexpr uint32_t kScope = hash_scope("data.split");

uint64_t hash_of_name(const std::string& name) {
  const auto bits = philox(RandomKey{hash_scope(name), 0}, kScope, 0, 0, static_cast<uint32_t>(name.size()));
  return uint64_t{bits[0]} << 32 | bits[1];
}

bool is_number(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

// Moves the documents of a share out of `from`; the order of the rest stays.
std::vector<DocumentFile> take_share(std::vector<DocumentFile>& from, size_t count) {
  std::vector<std::tuple<uint64_t, std::string>> ranked;
  ranked.reserve(from.size());
  for (const DocumentFile& document : from) ranked.emplace_back(hash_of_name(document.name), document.name);
  std::sort(ranked.begin(), ranked.end());
  const auto limit = ranked[count - 1];
  const auto middle = std::stable_partition(from.begin(), from.end(), [&](const DocumentFile& document) {
    return std::tuple(hash_of_name(document.name), document.name) > limit;
  });
  std::vector<DocumentFile> taken(middle, from.end());
  from.erase(middle, from.end());
  return taken;
}

void add(SplitDocuments& result, const std::string& split, const std::filesystem::path& input) {
  DocumentList list = find_documents(input);
  result.ignored += list.ignored;
  std::vector<DocumentFile>& documents = result.splits[split];
  for (DocumentFile& document : list.documents) {
    if (document.bytes == 0) {
      ++result.empty[split];
    } else {
      documents.push_back(std::move(document));
    }
  }
}

void check_unique(const SplitDocuments& result) {
  std::map<std::string, std::string> split_of_file;
  for (const auto& [split, documents] : result.splits) {
    std::map<std::string, std::string> file_of_name;
    for (const DocumentFile& document : documents) {
      const std::string file = std::filesystem::canonical(document.path).string();
      if (const auto [at, is_new] = split_of_file.emplace(file, split); !is_new) {
        fail(ErrorKind::data, "{}: given twice, for split {} and for split {}", file, at->second, split);
      }
      if (const auto [at, is_new] = file_of_name.emplace(document.name, file); !is_new) {
        fail(ErrorKind::data, "split {}: two documents are named {}: {} and {}", split, document.name, at->second,
             file);
      }
    }
  }
}

}  // namespace

SplitRules parse_split_options(const std::vector<std::string>& options) {
  SplitRules rules;
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == option.size()) {
      fail(ErrorKind::config, "--split {}: expected NAME=PATH or NAME=FRACTION", option);
    }
    const std::string name = option.substr(0, equals);
    const std::string value = option.substr(equals + 1);
    double share = 0;
    if (!is_number(value, share)) {
      rules.paths.emplace_back(name, value);
      continue;
    }
    if (!(share > 0 && share < 1)) fail(ErrorKind::config, "--split {}: a fraction lies between 0 and 1", option);
    if (name == "train") fail(ErrorKind::config, "--split {}: train is what the other fractions leave", option);
    const auto same_name = [&](const SplitShare& other) { return other.name == name; };
    if (std::any_of(rules.shares.begin(), rules.shares.end(), same_name)) {
      fail(ErrorKind::config, "--split {}: {} has a fraction already", option, name);
    }
    rules.shares.push_back({name, share});
  }
  return rules;
}

SplitDocuments assign_documents(const std::vector<std::filesystem::path>& inputs, const SplitRules& rules) {
  if (inputs.empty() && !rules.shares.empty()) {
    fail(ErrorKind::config, "--split {}={}: a fraction is a share of the --input documents, and there is no --input",
         rules.shares.front().name, rules.shares.front().share);
  }
  if (inputs.empty() && rules.paths.empty()) {
    fail(ErrorKind::config, "there is nothing to prepare: give --input PATH or --split NAME=PATH");
  }
  SplitDocuments result;
  for (const std::filesystem::path& input : inputs) add(result, "train", input);
  std::vector<DocumentFile>& train = result.splits["train"];
  const size_t total = train.size();
  for (const SplitShare& share : rules.shares) {
    const auto count = std::max(size_t{1}, static_cast<size_t>(std::llround(share.share * static_cast<double>(total))));
    if (count >= train.size()) {
      fail(ErrorKind::data, "--split {}={} leaves no document of {} for train", share.name, share.share, total);
    }
    std::vector<DocumentFile> taken = take_share(train, count);
    std::vector<DocumentFile>& split = result.splits[share.name];
    split.insert(split.end(), taken.begin(), taken.end());
  }
  if (inputs.empty()) result.splits.erase("train");
  for (const auto& [name, path] : rules.paths) add(result, name, path);
  check_unique(result);
  return result;
}

}  // namespace quire
