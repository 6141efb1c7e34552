// Damaged and hostile files of BPE tokenizers.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/files/file_io.h"
#include "core/json.h"
#include "data/tokenizers/bpe_spec_reader.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "tests/support/address_sanitizer.h"

namespace quire::test {
namespace {

// Changes a value somewhere in a file to one of another type, or removes it.
void change(nlohmann::ordered_json& value, std::mt19937& random) {
  static const std::vector<nlohmann::ordered_json> kOthers{nullptr,
                                                           true,
                                                           -1,
                                                           1.5,
                                                           1e300,
                                                           4294967296,
                                                           "",
                                                           " ",
                                                           "x",
                                                           nlohmann::ordered_json::array(),
                                                           nlohmann::ordered_json::object(),
                                                           nlohmann::ordered_json{{"type", "Sequence"}},
                                                           0,
                                                           1,
                                                           "ab",
                                                           "(a|b)*\\p{L}+"};
  if ((value.is_object() || value.is_array()) && !value.empty() && random() % 6 != 0) {
    auto at = value.begin();
    std::advance(at,
                 static_cast<std::ptrdiff_t>(random() % std::min<size_t>(value.size(), random() % 8 == 0 ? 2000 : 12)));
    if (random() % 12 == 0) {
      value.erase(at);
    } else {
      change(*at, random);
    }
    return;
  }
  value = kOthers[random() % kOthers.size()];
}

std::string mutant_of(const std::string& file, const nlohmann::ordered_json& parsed, std::mt19937& random) {
  std::string text = file;
  if (random() % 2 == 0) {
    nlohmann::ordered_json json = parsed;
    for (uint32_t i = 0; i <= random() % 3; ++i) change(json, random);
    return json.dump();
  }
  for (uint32_t i = 0; i <= random() % 3; ++i) {
    const size_t at = random() % std::min<size_t>(text.size(), random() % 2 == 0 ? text.size() : 2500);
    if (random() % 8 == 0) {
      text.resize(at);
    } else if (random() % 4 == 0) {
      text.erase(at, random() % 10);
    } else {
      text[at] = random() % 2 == 0 ? static_cast<char>(random()) : "0123456789{}[]\",:\\()*+?|^ae"[random() % 27];
    }
    if (text.empty()) break;
  }
  return text;
}

// A damaged or hostile file is a tokenizer or an error of one line; it takes no long time and no large memory.
TEST(BpeTokenizer, MutantsOfFiles) {
  std::mt19937 random(7);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/tests/golden/exchange/tokenizers")) {
    if (entry.is_directory()) files.push_back(read_text_file(entry.path() / "tokenizer.json"));
  }
  std::sort(files.begin(), files.end());
  std::vector<int32_t> ends;
  std::vector<nlohmann::ordered_json> parsed;
  for (const std::string& file : files) {
    ends.push_back(read_bpe_spec(file).added.front().id);
    parsed.push_back(parse_json<nlohmann::ordered_json>(file));
  }
  const std::string text =
      "The <|endoftext|> caf\xC3\xA9's 1234  \n\n x\xFF" + std::string(300, 'a') + std::string(300, ' ');
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  int refused = 0;
  const size_t rounds = under_address_sanitizer() ? 1000 : 5000;
  for (size_t round = 0; round < rounds; ++round) {
    const std::string mutant = mutant_of(files[round % files.size()], parsed[round % files.size()], random);
    const std::clock_t begin = std::clock();  // processor time: other programs may have the cores
    try {
      const BpeTokenizer tokenizer(mutant, ends[round % files.size()], ends[round % files.size()]);
      std::vector<int32_t> ids;
      tokenizer.encode(text, ids);
      tokenizer.divisible_prefix(text);
      tokenizer.decode_with_specials(ids);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC) << round;
  }
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  // AddressSanitizer keeps what was freed.
  if (!under_address_sanitizer()) {
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 256 * 1024);  // KiB
  }
  EXPECT_GT(refused, static_cast<int>(rounds / 5));
  EXPECT_LT(refused, static_cast<int>(rounds - rounds / 50));
}

}  // namespace
}  // namespace quire::test
