// Reads all sources and pages, and fails for words that were retired: each stands in the tables below with the term to
// use. tests/README.md has the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace quire {
namespace {

namespace fs = std::filesystem;

struct RetiredWord {
  std::string_view word;
  std::string_view instead;
  // Names that keep the word, and files in which it has another meaning.
  std::vector<std::string_view> names = {};
  std::vector<std::string_view> files = {};
};

// Parts of identifiers: "most" is retired in most_bytes, kMostBytes and most_. `at_most` and `at_least` stay.
const std::vector<RetiredWord> kNames{
    {"most", "max_...", {"most_likely", "MostLikely"}},
    // knn.h, knn.cpp and knn_mechanism.cpp have the option model.memory[].least.
    {"least", "min_...", {}, {"layers/memory/knn"}},
    {"wanted", "top_k for a number of selected entries, else requested, expected or needed"},
    {"turned", "transposed or rotated"},
    {"held", "carried, stored or kept", {"held_out"}},
};

// Words of comments, with the spaces around them.
const std::vector<RetiredWord> kCommentWords{
    {" wanted ", "selected, requested, expected or needed"},
    {" turned ", "transposed or rotated"},
};

// A comment that begins with one of these has no verb.
const std::vector<RetiredWord> kBeginnings{
    {"What ", "a sentence, such as \"Returns ...\", \"Holds ...\" or \"Code that ... share\""},
    {"Of ", "a sentence that names its subject"},
    {"Whether ", "\"Says whether ...\""},
};

// Phrases of comments and pages.
const std::vector<RetiredWord> kPhrases{
    {"half and half again", "binary search"}, {"of now is", "current"},
    {"is gone through", "is read"},           {"are gone through", "are read"},
    {"the zeros they should be", "zero"},
};

std::string lower(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Returns the parts of a name in lower case: k, most and bytes of kMostBytes or k_most_bytes.
std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts;
  bool begins = true;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '_') {
      begins = true;
      continue;
    }
    const auto is_upper = [&](size_t at) { return std::isupper(static_cast<unsigned char>(name[at])) != 0; };
    if (is_upper(i) && i > 0 && !is_upper(i - 1)) begins = true;
    if (begins) parts.emplace_back();
    parts.back() += lower(name.substr(i, 1));
    begins = false;
  }
  return parts;
}

bool has_retired_part(std::string_view name, std::string_view word) {
  const std::vector<std::string> parts = parts_of(name);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == word && (i == 0 || parts[i - 1] != "at")) return true;
  }
  return false;
}

bool keeps(const RetiredWord& retired, std::string_view name, const std::string& file) {
  const auto within = [&](std::string_view kept) { return name.find(kept) != std::string_view::npos; };
  const auto is_file = [&](std::string_view begin) { return file.compare(0, begin.size(), begin) == 0; };
  return std::any_of(retired.names.begin(), retired.names.end(), within) ||
         std::any_of(retired.files.begin(), retired.files.end(), is_file);
}

using Found = std::vector<std::string>;

void find_names(Found& found, const std::string& text, const std::string& file) {
  const std::string small = lower(text);
  const auto is_there = [&](const RetiredWord& retired) { return small.find(retired.word) != std::string::npos; };
  if (std::none_of(kNames.begin(), kNames.end(), is_there)) return;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string_view name = std::string_view(text).substr(at, end - at);
    for (const RetiredWord& retired : kNames) {
      if (!has_retired_part(name, retired.word) || keeps(retired, name, file)) continue;
      found.push_back(std::string(name) + ": use " + std::string(retired.instead));
    }
    at = end + 1;
  }
}

void find_words(Found& found, const std::string& text, const std::vector<RetiredWord>& table, const std::string& file) {
  for (const RetiredWord& retired : table) {
    if (text.find(retired.word) == std::string::npos || keeps(retired, "", file)) continue;
    found.push_back(std::string(retired.word) + ": use " + std::string(retired.instead));
  }
}

// Splits a line of C++ into code without literals, and its comment. Comments in /* */ are not used.
struct Line {
  std::string code, comment;

  explicit Line(const std::string& text) {
    for (size_t at = 0; at < text.size(); ++at) {
      if (text.compare(at, 2, "//") == 0) {
        comment = text.substr(std::min(text.size(), at + 3));
        return;
      }
      if (text[at] != '"') {
        code += text[at];
        continue;
      }
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    }
  }
  bool continues_comment() const {
    return !comment.empty() && std::all_of(code.begin(), code.end(), [](char c) { return c == ' '; });
  }
};

Found retired_in_source(std::istream& source, const std::string& file) {
  Found found;
  std::string comment;  // of consecutive lines
  const auto end_comment = [&] {
    if (comment.empty()) return;
    for (const RetiredWord& retired : kBeginnings) {
      if (comment.compare(0, retired.word.size(), retired.word) == 0) {
        found.push_back(std::string(retired.word) + "..: use " + std::string(retired.instead));
      }
    }
    find_words(found, " " + comment + " ", kCommentWords, file);
    find_words(found, lower(comment), kPhrases, file);
    for (size_t open = comment.find('`'); open != std::string::npos; open = comment.find('`', open + 1)) {
      const size_t close = comment.find('`', open + 1);
      if (close == std::string::npos) break;
      find_names(found, comment.substr(open + 1, close - open - 1), file);
      open = close;
    }
    comment.clear();
  };
  for (std::string text; std::getline(source, text);) {
    const Line line(text);
    if (!line.continues_comment()) end_comment();
    find_names(found, line.code, file);
    if (!line.comment.empty()) comment += (comment.empty() ? "" : " ") + line.comment;
  }
  end_comment();
  return found;
}

// Returns the files below a folder with one of the endings, but those of a build, as paths from the root.
std::vector<fs::path> files_of(const fs::path& folder, const std::set<std::string>& endings) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(QUIRE_SOURCE_DIR) / folder)) {
    const bool right = entry.is_regular_file() && endings.count(entry.path().extension().string()) != 0;
    if (right) files.push_back(entry.path().lexically_relative(QUIRE_SOURCE_DIR));
  }
  return files;
}

TEST(RetiredWords, AreNotInSourcesAndPages) {
  size_t sources = 0, pages = 0;
  for (const char* folder :
       {"core", "kernels", "autograd", "layers", "data", "trainers", "experiments", "tests", "configs"}) {
    for (const fs::path& file : files_of(folder, {".h", ".cpp", ".cu"})) {
      if (file == "tests/core/retired_words_test.cpp") continue;
      std::ifstream text(fs::path(QUIRE_SOURCE_DIR) / file);
      EXPECT_EQ(retired_in_source(text, file.string()), Found()) << "in " << file;
      ++sources;
    }
    for (const fs::path& file : files_of(folder, {".md"})) {
      std::ifstream stream(fs::path(QUIRE_SOURCE_DIR) / file);
      std::stringstream text;
      text << stream.rdbuf();
      Found found;
      find_words(found, lower(text.str()), kPhrases, file.string());
      EXPECT_EQ(found, Found()) << "in " << file;
      ++pages;
    }
  }
  EXPECT_GT(sources, 500U);
  EXPECT_GT(pages, 10U);
}

TEST(RetiredWords, AreNoticed) {
  const auto count = [](const std::string& text, const std::string& file = "core/a.h") {
    std::istringstream source(text);
    return retired_in_source(source, file).size();
  };
  EXPECT_EQ(count("int64_t most_bytes = kMostRanks + at_most;\n"), 2U);
  EXPECT_EQ(count("take(most_likely());  // at most four\n"), 0U);
  EXPECT_EQ(count("fail(\"most_rows is wanted\", heldBytes);\n"), 1U);
  EXPECT_EQ(count("// What the kernels share.\nint a;\n"), 1U);
  EXPECT_EQ(count("int a;  // Of a row.\n"), 1U);
  EXPECT_EQ(count("// Says whether a row\n// Whether or not.\n"), 0U);
  EXPECT_EQ(count("// Returns the matrix,\n// turned around.\n"), 1U);
  EXPECT_EQ(count("// Reads at most `most` rows.\n"), 1U);
  EXPECT_EQ(count("// The exponentials are the zeros they\n// should be.\n"), 1U);
  EXPECT_EQ(count("int64_t least = 0;\n", "layers/memory/knn.h"), 0U);
  EXPECT_EQ(count("int64_t least = 0;\n"), 1U);
}

}  // namespace
}  // namespace quire
