// A mechanism's kind is named in its own files and in the list of mechanisms, and nowhere else: what something outside
// wants to know is a question of the descriptor (layers/mechanism/mechanism.h). Walks the sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mechanism/mechanism_registry.h"
#include "tests/support/test_mechanisms.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

using Names = std::set<std::string>;

// Those of the registry without the mechanisms that only tests know.
Names kinds_of_quire() {
  Names ours;
  for (const Mechanism& mechanism : mechanisms_of_quire()) ours.insert(mechanism.kind);
  Names kinds;
  for (const Mechanism* mechanism : mechanisms()) {
    if (ours.count(mechanism->kind) != 0) kinds.insert(mechanism->kind);
  }
  return kinds;
}

std::string read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_upper(char c) {
  return std::isupper(static_cast<unsigned char>(c)) != 0;
}
bool is_lower(char c) {
  return std::islower(static_cast<unsigned char>(c)) != 0;
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// The place behind a raw string literal whose opening quote is at `quote`.
size_t end_of_raw_string(const std::string& text, size_t quote) {
  const size_t open = std::min(text.find('(', quote), text.size());
  std::string close = text.substr(quote + 1, open - quote - 1) + "\"";
  close.insert(close.begin(), ')');
  const size_t end = text.find(close, open);
  return end == std::string::npos ? text.size() : end + close.size();
}

// The place behind a string or character literal whose quote is at `quote`.
size_t end_of_literal(const std::string& text, size_t quote) {
  size_t at = quote + 1;
  while (at < text.size() && text[at] != text[quote] && text[at] != '\n') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

std::string without_comments(const std::string& text) {
  std::string code;
  size_t at = 0;
  const auto keep = [&](size_t end) {
    code.append(text, at, end - at);
    at = end;
  };
  while (at < text.size()) {
    const char c = text[at];
    const bool separates_digits = c == '\'' && at > 0 && std::isxdigit(static_cast<unsigned char>(text[at - 1])) != 0;
    if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.compare(at, 2, "/*") == 0) {
      const size_t end = text.find("*/", at + 2);
      at = end == std::string::npos ? text.size() : end + 2;
      code += ' ';
    } else if (c == '"' && at > 0 && text[at - 1] == 'R') {
      keep(end_of_raw_string(text, at));
    } else if (c == '"' || (c == '\'' && !separates_digits)) {
      keep(end_of_literal(text, at));
    } else {
      keep(at + 1);
    }
  }
  return code;
}

// Parts of an identifier or word: "VqConfig_of2" is Vq, Config, of, 2; `underscore` says what stands before.
struct Part {
  std::string text;  // in lower case
  bool underscore;
};

std::vector<Part> parts_of(const std::string& word) {
  std::vector<Part> parts;
  bool underscore = false;
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if (c == '_') {
      underscore = true;
      continue;
    }
    const char before = i > 0 ? word[i - 1] : '_';
    // Before a capital behind a small letter, before the last capital of "VQConfig", around digits.
    const bool begins = before == '_' || (is_upper(c) && !is_upper(before)) ||
                        (is_upper(c) && i + 1 < word.size() && is_lower(word[i + 1])) ||
                        is_digit(c) != is_digit(before);
    if (begins) parts.push_back({"", std::exchange(underscore, false)});
    parts.back().text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return parts;
}

// A kind is a run of parts: "knn" of Knn and kNN, "fast_weight" of fast_weight and FastWeight.
bool names_kind(const std::vector<Part>& parts, const std::string& kind) {
  for (size_t begin = 0; begin < parts.size(); ++begin) {
    std::string joined = parts[begin].text;
    std::string snake = joined;
    for (size_t end = begin + 1;; ++end) {
      if (joined == kind || snake == kind) return true;
      if (end >= parts.size() || joined.size() > kind.size()) break;
      if (parts[end].underscore) joined += '_';
      joined += parts[end].text;
      snake += '_';
      snake += parts[end].text;
    }
  }
  return false;
}

// Operations, functions and networks may be called as kinds are: ops::knn_search, kernels/knn.h, softmax(..),
// InfiniBand, the media type text/plain.
std::string without_operations(const std::string& code) {
  static const std::regex operations(
      R"(\bops::\w+(::\w+)?|#include "(kernels|autograd)/[^"]*"|\bsoftmax\(|\bInfiniBand\b|\btext/plain\b)");
  return std::regex_replace(code, operations, " ");
}

// Kinds that code and string literals name.
Names named_kinds(const std::string& source, const Names& kinds) {
  const std::string code = without_operations(without_comments(source));
  Names named;
  for (size_t at = 0; at < code.size();) {
    if (!is_word(code[at])) {
      // An escape such as \n is no letter of a word.
      at += code[at] == '\\' ? 2 : 1;
      continue;
    }
    size_t end = at;
    while (end < code.size() && is_word(code[end])) ++end;
    const std::vector<Part> parts = parts_of(code.substr(at, end - at));
    for (const std::string& kind : kinds) {
      if (names_kind(parts, kind)) named.insert(kind);
    }
    at = end;
  }
  return named;
}

// The kind whose own file this is; empty when it is nobody's.
std::string owner_of(const fs::path& file, const Names& kinds) {
  const std::string stem = file.stem().string();
  if (stem == "codebook") return "vq";
  const Names named = named_kinds(stem, kinds);
  return named.empty() ? "" : *named.begin();
}

std::vector<fs::path> files_of(const std::string& folder, const std::vector<std::string>& extensions) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(QUIRE_SOURCE_DIR) / folder)) {
    const bool expected = std::find(extensions.begin(), extensions.end(), entry.path().extension()) != extensions.end();
    if (entry.is_regular_file() && expected) files.push_back(entry.path());
  }
  return files;
}

TEST(MechanismNames, StandInTheirOwnFilesOnly) {
  const Names kinds = kinds_of_quire();
  ASSERT_EQ(kinds.size(), mechanisms_of_quire().size());
  std::map<std::string, int> own;
  size_t walked = 0;
  for (const char* folder : {"trainers", "data", "core", "layers"}) {
    for (const fs::path& file : files_of(folder, {".h", ".cpp"})) {
      if (file.filename() == "mechanism_list.h") continue;  // the registry lines
      if (file.filename() == "previous_keys.h") continue;   // the table of keys that have other names now
      Names named = named_kinds(read_text(file), kinds);
      const std::string owner = folder == std::string("layers") ? owner_of(file, kinds) : "";
      if (named.erase(owner) != 0) ++own[owner];
      // Terms of its own publication, which are called like others' kinds.
      if (owner == "drt" || owner == "hils") {
        named.erase("landmark");
        named.erase("softmax");
      }
      if (owner == "infini") named.erase("delta");
      // Models of other programs are softmax attention in plain stacks, and are written as keys of the configuration.
      if (file.parent_path().filename() == "exchange") {
        named.erase("softmax");
        named.erase("plain");
      }
      EXPECT_EQ(named, Names()) << "in " << fs::relative(file, QUIRE_SOURCE_DIR);
      ++walked;
    }
  }
  EXPECT_GT(walked, 200U);
  // Each kind was found where it belongs, so it would have been found elsewhere.
  for (const std::string& kind : kinds) EXPECT_GT(own[kind], 0) << kind;
}

TEST(MechanismNames, AreNoticed) {
  const Names kinds{"vq", "knn", "plain", "fast_weight"};
  const std::pair<const char*, const char*> noticed[] = {
      {"int vq_window = 1;", "vq"},
      {"VqConfig config;", "vq"},
      {"VQConfig config;", "vq"},
      {"x = MixerKind::vq;", "vq"},
      {"int64_t largest_vq2_;", "vq"},
      {"constexpr int kVq = 1;", "vq"},
      {"#include \"layers/mixers/vq_config.h\"", "vq"},
      {"fail(\"a layer of Transformer-VQ\");", "vq"},
      {"f(\"kind: vq\");", "vq"},
      {"f(\"\\nvq\");", "vq"},
      {"f(\"a // b\", vq);", "vq"},
      {"f('\"', vq, '\"');", "vq"},
      {"int n = 10'000; int vq;", "vq"},
      {"auto s = R\"(\" // vq)\";", "vq"},
      {"struct KnnMemory;", "knn"},
      {"f(\"a kNN memory\");", "knn"},
      {"f(\"a plain word\");", "plain"},
      {"class PlainStack;", "plain"},
      {"FastWeight w;", "fast_weight"},
      {"get_fast_weight();", "fast_weight"},
      {"fastWeightOf();", "fast_weight"},
  };
  for (const auto& [text, kind] : noticed) EXPECT_EQ(named_kinds(text, kinds), Names{kind}) << text;
}

TEST(MechanismNames, OtherWordsAreNot) {
  const Names kinds{"vq", "knn", "plain", "fast_weight"};
  for (const char* text : {
           "int a;  // vq",
           "/* vq\n knn */ int a;",
           "f(\"explain\", explained);",
           "int vqa, avq, v_q;",
           "int vQuantity, plainly;",
           "fast(weight); int fast__, weight_;",
           "f(\"fast weight\");",
           "int k, nn; f(\"k nn\");",
       }) {
    EXPECT_EQ(named_kinds(text, kinds), Names()) << text;
  }
}

// A test mechanism is no kind of quire, however early it is registered.
TEST(MechanismNames, ThoseOfTestsDoNotCount) {
  const Names before = kinds_of_quire();
  register_test_mechanisms();
  EXPECT_EQ(kinds_of_quire(), before);
}

int64_t lines_of(const fs::path& file) {
  const std::string text = read_text(file);
  return std::count(text.begin(), text.end(), '\n');
}

// Lines of the longest function: from the last line at the left margin, or at that of a class's members, to a brace
// that stands there alone.
int64_t longest_function(const std::string& text) {
  int64_t longest = 0;
  for (const std::string margin : {"", "  "}) {
    std::istringstream lines(text);
    int64_t begin = 0, number = 1;
    for (std::string line; std::getline(lines, line); ++number) {
      if (line == margin + "}") longest = std::max(longest, begin == 0 ? 0 : number - begin + 1);
      const size_t first = line.find_first_not_of(' ');
      if (first == margin.size() && (is_word(line[first]) || line[first] == '~')) begin = number;
    }
  }
  return longest;
}

TEST(SourceSizes, FunctionsAreMeasured) {
  EXPECT_EQ(longest_function("int a;\n"), 0);
  EXPECT_EQ(longest_function("int f(int a,\n      int b) {\n#pragma unroll\n  g(a);\n}\n\nint h() {\n}\n"), 5);
  EXPECT_EQ(longest_function("struct A {\n  ~A() {\n    f();\n  }\n};\n"), 3);
}

TEST(SourceSizes, KernelsOfGpusStaySmall) {
  const std::vector<fs::path> files = files_of("kernels/cuda", {".h", ".cpp", ".cu"});
  EXPECT_GT(files.size(), 100U);
  for (const fs::path& file : files) {
    EXPECT_LE(lines_of(file), 400) << fs::relative(file, QUIRE_SOURCE_DIR);
    EXPECT_LE(longest_function(read_text(file)), 120) << fs::relative(file, QUIRE_SOURCE_DIR);
  }
}

TEST(SourceSizes, StaySmall) {
  const fs::path root = QUIRE_SOURCE_DIR;
  EXPECT_LT(lines_of(root / "layers/mechanism/mechanism.h"), 120);
  EXPECT_LE(lines_of(root / "trainers/step/step.cpp"), 200);
  // A file that is not found has no lines.
  EXPECT_GT(lines_of(root / "layers/mechanism/mechanism.h"), 60);
  EXPECT_GT(lines_of(root / "trainers/step/step.cpp"), 60);
  for (const char* folder : {"core", "autograd", "layers", "data", "trainers", "experiments"}) {
    for (const fs::path& file : files_of(folder, {".h", ".cpp", ".cu", ".cuh", ".py", ".sh"})) {
      EXPECT_LE(lines_of(file), 300) << fs::relative(file, root);
    }
  }
}

}  // namespace
}  // namespace quire::test
