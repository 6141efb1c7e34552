#include "data/corpus/split_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "core/check.h"
#include "core/files/file_io.h"
#include "data/sources/utf8.h"

namespace quire {

namespace {

constexpr int64_t kLongestList = int64_t{1} << 30;

bool is_number(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

void add(SplitFiles& result, const std::string& split, const std::filesystem::path& input) {
  DocumentList list = find_documents(input);
  result.ignored += list.ignored;
  result.hidden += list.hidden;
  std::vector<DocumentFile>& files = result.splits[split];
  files.insert(files.end(), list.documents.begin(), list.documents.end());
}

void check_unique(const SplitFiles& result) {
  std::map<std::string, std::string> split_of_file;
  for (const auto& [split, documents] : result.splits) {
    std::map<std::string, std::string> file_of_name;
    for (const DocumentFile& document : documents) {
      const std::string file = std::filesystem::canonical(document.path).string();
      if (const auto [at, is_new] = split_of_file.emplace(file, split); !is_new) {
        fail(ErrorKind::data, "{}: given twice, for split {} and for split {}", file, at->second, split);
      }
      // Records bring their own names.
      if (document.format == FileFormat::records) continue;
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
      fail(ErrorKind::config, "--split {}: expected NAME=PATH, NAME=@LIST or NAME=FRACTION", option);
    }
    const std::string name = option.substr(0, equals);
    const std::string value = option.substr(equals + 1);
    if (value.front() == '@') {
      if (name == "train") fail(ErrorKind::config, "--split {}: train is what the other lists leave", option);
      rules.lists.emplace_back(name, value.substr(1));
      continue;
    }
    double share = 0;
    if (!is_number(value, share)) {
      rules.paths.emplace_back(name, value);
      continue;
    }
    if (!(share > 0 && share < 1))
      fail(ErrorKind::config, "--split {}: a fraction is more than 0 and less than 1", option);
    if (name == "train") fail(ErrorKind::config, "--split {}: train is what the other fractions leave", option);
    const auto same_name = [&](const SplitShare& other) { return other.name == name; };
    if (std::any_of(rules.shares.begin(), rules.shares.end(), same_name)) {
      fail(ErrorKind::config, "--split {}: {} has a fraction already", option, name);
    }
    rules.shares.push_back({name, share});
  }
  return rules;
}

SplitFiles find_split_files(const std::vector<std::filesystem::path>& inputs, const SplitRules& rules) {
  if (inputs.empty() && !rules.shares.empty()) {
    fail(ErrorKind::config, "--split {}={}: a fraction is a share of the --input documents, and there is no --input",
         rules.shares.front().name, rules.shares.front().share);
  }
  if (inputs.empty() && !rules.lists.empty()) {
    fail(ErrorKind::config, "--split {}=@{}: a list names documents of --input, and there is no --input",
         rules.lists.front().first, rules.lists.front().second.string());
  }
  if (inputs.empty() && rules.paths.empty()) {
    fail(ErrorKind::config, "there is nothing to prepare: give --input PATH or --split NAME=PATH");
  }
  SplitFiles result;
  for (const std::filesystem::path& input : inputs) add(result, "train", input);
  for (const auto& [name, path] : rules.paths) add(result, name, path);
  check_unique(result);
  return result;
}

std::map<std::string, std::vector<std::string>> read_lists(const SplitRules& rules) {
  std::map<std::string, std::vector<std::string>> lists;
  std::map<std::string, std::string> split_of_name;
  for (const auto& [split, path] : rules.lists) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      fail(ErrorKind::data, "--split {}=@{}: no such file", split, path.string());
    }
    std::string text = read_text_file(path, {.kind = ErrorKind::data, .max_bytes = kLongestList});
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    std::istringstream lines(std::move(text));
    std::vector<std::string>& names = lists[split];
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty()) continue;
      if (const auto [at, is_new] = split_of_name.emplace(line, split); !is_new) {
        fail(ErrorKind::data, "{}: \"{}\" is listed twice, for split {} and for split {}", path.string(), line,
             at->second, split);
      }
      names.push_back(line);
    }
    if (names.empty()) fail(ErrorKind::data, "{}: the list for split {} is empty", path.string(), split);
  }
  return lists;
}

void take_shares(CorpusWriter& writer, const SplitRules& rules, int64_t inputs) {
  for (const SplitShare& share : rules.shares) {
    const int64_t count =
        std::max(int64_t{1}, static_cast<int64_t>(std::llround(share.share * static_cast<double>(inputs))));
    const int64_t before = writer.documents("train");
    if (count < before) writer.move_share("train", share.name, count);
    if (count >= before || writer.documents("train") == 0) {
      fail(ErrorKind::data, "--split {}={} leaves no document of {} for train", share.name, share.share, inputs);
    }
  }
}

}  // namespace quire
