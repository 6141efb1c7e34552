// Tokenizers of other programs, whose ids were computed by these programs (exchange/tokenizers).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/files/file_io.h"
#include "data/tokenizers/bpe_spec_reader.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/make_tokenizer.h"
#include "tests/support/sha256.h"
#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = std::vector<int32_t>;

std::string variable_or(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

fs::path exchange_folder() {
  return variable_or("QUIRE_EXCHANGE_DIR", std::string(QUIRE_SOURCE_DIR) + "/tests/golden/exchange");
}

json read_json(const fs::path& path) {
  return json::parse(read_text_file(path));
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text, bool specials) {
  Ids ids;
  if (specials) {
    tokenizer.encode_with_specials(text, ids);
  } else {
    tokenizer.encode(text, ids);
  }
  return ids;
}

// Encodes as a corpus does, from parts of the text of unlike sizes.
Ids encoded_in_parts(const Tokenizer& tokenizer, std::string_view text, size_t part) {
  Ids ids;
  std::string pending;
  bool begins = true;
  const auto encode = [&](std::string_view piece) {
    if (begins) {
      tokenizer.encode(piece, ids);
    } else {
      tokenizer.encode_rest(piece, ids);
    }
    begins = begins && piece.empty();
  };
  for (size_t at = 0; at < text.size(); at += part) {
    pending += text.substr(at, part);
    const size_t whole = tokenizer.divisible_prefix(pending);
    encode(std::string_view(pending).substr(0, whole));
    pending.erase(0, whole);
  }
  encode(pending);
  return ids;
}

class Words : public PreTokenizer::Words {
 public:
  void add(std::string_view word, bool /*is_valid*/) override { sizes.push_back(word.size()); }
  std::vector<size_t> sizes;
};

struct Folder {
  explicit Folder(const fs::path& at)
      : path(at),
        strings(read_json(at.parent_path() / "strings.json").get<std::vector<std::string>>()),
        expected(read_json(at / "expected.json")) {}
  // Returns the ids of a text whose special tokens are text.
  Ids plain(size_t i) const {
    const std::string key = std::to_string(i);
    return (expected["plain"].contains(key) ? expected["plain"][key] : expected["specials"][i]).get<Ids>();
  }
  fs::path path;
  std::vector<std::string> strings;
  json expected;
};

std::vector<fs::path> folders(const fs::path& exchange = exchange_folder()) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(exchange / "tokenizers")) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void expect_ids(const Tokenizer& tokenizer, const Folder& folder) {
  ASSERT_EQ(folder.expected["specials"].size(), folder.strings.size());
  for (size_t i = 0; i < folder.strings.size(); ++i) {
    SCOPED_TRACE(folder.path.filename().string() + ", text " + std::to_string(i) + ": " + folder.strings[i]);
    const Ids ids = folder.expected["specials"][i].get<Ids>();
    const json& decoded = folder.expected["decoded"];
    const std::string key = std::to_string(i);
    EXPECT_EQ(encoded(tokenizer, folder.strings[i], true), ids);
    EXPECT_EQ(encoded(tokenizer, folder.strings[i], false), folder.plain(i));
    EXPECT_EQ(tokenizer.decode_with_specials(ids),
              decoded.contains(key) ? decoded[key].get<std::string>() : folder.strings[i]);
  }
}

TEST(ExchangedTokenizers, GiveTheIdsOfTheirPrograms) {
  ASSERT_FALSE(folders().empty());
  for (const fs::path& path : folders()) {
    const Folder folder(path);
    const auto tokenizer = parse_tokenizer_option("hf:" + path.string(), {.allow_lossy = true});
    expect_ids(*tokenizer, folder);
    const json& expected = folder.expected;
    EXPECT_EQ(tokenizer->vocabulary_size(), expected["vocabulary"].get<int64_t>()) << path;
    if (!expected["eos"].is_null()) {
      EXPECT_EQ(tokenizer->eos_id(), expected["eos"].get<int32_t>()) << path;
    }
    const json& bos = expected["bos"].is_null() ? expected["eos"] : expected["bos"];
    if (!bos.is_null()) {
      EXPECT_EQ(tokenizer->bos_id(), bos.get<int32_t>()) << path;
    }
    // The stored form is the same tokenizer.
    expect_ids(*make_tokenizer(tokenizer->serialise(), "stored", ErrorKind::data), folder);
  }
}

TEST(ExchangedTokenizers, CutTheSameWords) {
  for (const fs::path& path : folders()) {
    const Folder folder(path);
    const BpeSpec spec = read_bpe_spec(read_text_file(path / "tokenizer.json"));
    const TextNormalizer normalizer(spec.normalizer);
    const PreTokenizer pre_tokenizer(spec.pre_tokenizer);
    SplitPattern::Matcher matcher;
    const json& pieces = folder.expected["pieces"];
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::string text = folder.strings[i];
      normalizer.normalize(text, false);
      Words words;
      pre_tokenizer.cut(text, true, matcher, words);
      EXPECT_EQ(words.sizes, pieces[i].get<std::vector<size_t>>()) << path << ", text " << i << ": " << text;
    }
  }
}

// The older forms of the same tokenizers.
TEST(ExchangedTokenizers, GiveTheSameIdsFromOtherFiles) {
  for (const fs::path& path : folders()) {
    const Folder folder(path);
    if (fs::exists(path / "vocab.json") && fs::exists(path / "merges.txt")) {
      expect_ids(*parse_tokenizer_option("bpe:" + path.string(), {.allow_lossy = true}), folder);
    }
    if (!fs::exists(path / "tokenizer.model")) continue;
    const auto tokenizer = parse_tokenizer_option("tiktoken:" + (path / "tokenizer.model").string());
    for (size_t i = 0; i < folder.strings.size(); ++i) {
      EXPECT_EQ(encoded(*tokenizer, folder.strings[i], false), folder.plain(i)) << path << ", text " << i;
    }
  }
}

TEST(ExchangedTokenizers, GiveEveryByteBackUnlessTheyAlterText) {
  for (const fs::path& path : folders()) {
    const Folder folder(path);
    const auto tokenizer = parse_tokenizer_option("hf:" + path.string(), {.allow_lossy = true});
    for (const std::string& text : folder.strings) {
      if (!tokenizer->lossy()) {
        EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text, false)), text) << path;
      }
      EXPECT_EQ(encoded_in_parts(*tokenizer, text, 3), encoded(*tokenizer, text, false)) << path << ": " << text;
    }
  }
}

// Other components and random texts of many scripts, with the ids that the package gives where it is installed.
// QUIRE_TEST_PYTHON names another Python than python3, QUIRE_TEST_SEED other texts.
TEST(ExchangedTokenizers, AgreeWithThePackage) {
  const TemporaryDirectory made;
  const std::string command =
      variable_or("QUIRE_TEST_PYTHON", "python3") + " '" QUIRE_SOURCE_DIR "/tests/data/exchanged_tokenizers.py' '" +
      exchange_folder().string() + "' '" + made.path().string() + "' " + variable_or("QUIRE_TEST_SEED", "1");
  const int status = std::system((command + " 2>/dev/null").c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
    GTEST_SKIP() << "python3 has no package tokenizers";
  }
  ASSERT_EQ(status, 0) << command;
  for (const fs::path& path : folders(made.path())) {
    const Folder folder(path);
    const auto tokenizer = parse_tokenizer_option("hf:" + path.string(), {.allow_lossy = true});
    expect_ids(*tokenizer, folder);
    for (const std::string& text : folder.strings) {
      EXPECT_EQ(encoded_in_parts(*tokenizer, text, 7), encoded(*tokenizer, text, false)) << path << ": " << text;
    }
  }
}

// Returns the bytes of the first characters of a text.
std::string first_characters(const std::string& text, size_t count) {
  size_t at = 0;
  while (at < text.size() && count > 0) {
    ++at;
    while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80U) ++at;
    --count;
  }
  return text.substr(0, at);
}

// The texts are books that quire does not contain: QUIRE_SAMPLE_BOOKS names their folder, which else is looked for
// beside the exchange folder, as corpus/sample.
TEST(ExchangedTokenizers, GiveTheIdsOfBooksInAnyParts) {
  const fs::path books =
      variable_or("QUIRE_SAMPLE_BOOKS", (exchange_folder().parent_path() / "corpus/sample").string());
  int compared = 0;
  for (const fs::path& path : folders()) {
    const Folder folder(path);
    const auto tokenizer = parse_tokenizer_option("hf:" + path.string(), {.allow_lossy = true});
    for (const auto& [name, long_text] : folder.expected["long"].items()) {
      if (!fs::exists(books / name)) continue;
      const std::string text = first_characters(read_text_file(books / name), long_text["characters"].get<size_t>());
      const Ids ids = encoded(*tokenizer, text, false);
      EXPECT_EQ(ids.size(), long_text["tokens"].get<size_t>()) << path << ", " << name;
      std::string bytes(ids.size() * sizeof(int32_t), '\0');
      std::copy_n(reinterpret_cast<const char*>(ids.data()), bytes.size(), bytes.begin());
      EXPECT_EQ(sha256(bytes), long_text["sha256_of_little_endian_i32"].get<std::string>()) << path << ", " << name;
      for (const size_t part : {size_t{911}, size_t{60'000}}) {
        EXPECT_EQ(encoded_in_parts(*tokenizer, text, part), ids) << path << ", " << name << " in parts of " << part;
      }
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no books in " << books << "; QUIRE_SAMPLE_BOOKS names their folder";
}

}  // namespace
}  // namespace quire::test
