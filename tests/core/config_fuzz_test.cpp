// Damaged configurations are either read or refused with a place; nothing else may happen.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "tests/core/config_example.h"

namespace quire {
namespace {

const char* const kText = R"(# a run
corpus: "books.h5"
lr: 5e-4
betas: [0.9, 0.95]
set: {model.memory.0.size: 16, data: {rows: 3}}
model:
  attention: {window: 128, cache: {kind: kv, length: 64}}
  memory:
    - kind: knn
      layers: [0, 2]
    - {kind: vq, size: 4}
  layer_overrides:
    - {layers: [0], position: none}
)";

// A few edits: bytes replaced, pieces dropped, doubled or moved, and characters that mean something to YAML.
std::string mutate(std::string text, std::mt19937& random) {
  static const std::string kSpecial = "{}[]:,#&*!|>'\"%@`-? \n\t~0x.=\\\x01\xc3";
  for (unsigned edits = 1 + random() % 4; edits > 0 && !text.empty(); --edits) {
    const size_t at = random() % text.size();
    const size_t length = random() % 12;
    switch (random() % 4) {
      case 0:
        text[at] = kSpecial[random() % kSpecial.size()];
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(random() % text.size(), text.substr(at, length));
        break;
      default:
        text.insert(at, 1, kSpecial[random() % kSpecial.size()]);
        break;
    }
  }
  return text;
}

TEST(ConfigFuzz, DamagedTextsAreReadOrRefused) {
  std::mt19937 random(1);
  int read = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = mutate(kText, random);
    try {
      const ExampleRun run = example(text);
      ++read;
      const std::string dump = dump_config(run);
      EXPECT_EQ(dump_config(parse_config<ExampleRun>(dump, "dump")), dump) << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config) << error.what();
      EXPECT_EQ(std::string(error.what()).rfind("run.yaml:", 0), 0U) << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(read, 50);  // most damage is seen, but not all of it is damage
}

// Eight times the keys may take some eight times as long; comparing each with each takes 64 times as long.
TEST(ConfigFuzz, ManyKeysTakeTimeInProportion) {
  const auto seconds_for = [](int keys) {
    std::string text = "corpus: a\nset:\n";
    for (int i = 0; i < keys; ++i) text += "  a_key_of_the_same_length_" + std::to_string(1'000'000 + i) + ": 1\n";
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(example(text).set.size(), static_cast<size_t>(keys));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double few = std::min({seconds_for(3000), seconds_for(3000), seconds_for(3000)});
  EXPECT_LT(seconds_for(24000), 24 * few);
}

TEST(ConfigFuzz, DamagedOverridesAreReadOrRefused) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = mutate("model.memory.0={kind: knn, size: 3}", random);
    try {
      example(kText, {text});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config) << error.what();
      EXPECT_EQ(std::string(error.what()).rfind("command line: ", 0), 0U) << error.what();
    }
  }
}

}  // namespace
}  // namespace quire
