// BPE tokenizers of others: what is refused, odd texts, long words, training.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "core/files/file_io.h"
#include "data/corpus/tokenizer_training.h"
#include "data/tokenizers/bpe_files.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/make_tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kTokenizers = fs::path(QUIRE_SOURCE_DIR) / "tests/golden/exchange/tokenizers";

std::string file_of(const std::string& name) {
  return read_text_file(kTokenizers / name / "tokenizer.json");
}

std::unique_ptr<Tokenizer> opened(const std::string& name) {
  return parse_tokenizer_option("hf:" + (kTokenizers / name).string(), {.allow_lossy = true});
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A patch of a tokenizer.json (RFC 7386, but that lists are replaced) and the message that it gives.
TEST(BpeTokenizer, RefusesByNameWhatItDoesNotKnow) {
  const auto split = [](const char* pattern) {
    return fmt::format(R"({{"pre_tokenizer": {{"type": "Split", "pattern": {}, "behavior": "Isolated"}}}})", pattern);
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"model": {"dropout": 0.1}})", "dropout is set"},
      {R"({"model": {"type": "WordPiece"}})", "model \"WordPiece\" is unknown"},
      {R"({"model": {"end_of_word_suffix": "</w>"}})", "end_of_word_suffix is set"},
      {R"({"model": {"vocab": {"new": 5}}})", "id 5 stands for two tokens"},
      {R"({"model": {"vocab": {"new": 1e9}}})", "has the id 1000000000.0"},
      {R"({"model": {"vocab": {"new": 900000}}})", "has the id 900000, but there are"},
      {R"({"model": {"merges": [["t", "zq"]]}})", "\"zq\" is not in the vocabulary"},
      {R"({"model": {"merges": ["z q"]}})", "\"zq\" is not in the vocabulary"},
      {R"({"model": {"merges": ["a b c"]}})", "is not a pair of tokens"},
      {R"({"model": {"unk_token": "zq"}})", "unk_token \"zq\" is not in the vocabulary"},
      {R"({"normalizer": {"type": "Lowercase"}})", "normalizer \"Lowercase\" is unknown"},
      {R"({"pre_tokenizer": {"type": "Whitespace"}})", "pre_tokenizer \"Whitespace\" is unknown"},
      {R"({"decoder": {"type": "WordPiece"}})", "decoder \"WordPiece\" is unknown"},
      {R"({"post_processor": {"type": "Bert"}})", "post_processor \"Bert\" is unknown"},
      {split(R"({"String": " "})"), "its pattern is a String"},
      {split(R"j({"Regex": "(a"})j"), "missing closing parenthesis"},
      {split(R"({"Regex": "[a&&b]"})"), "\"&&\" in a class is unknown"},
      {split(R"j({"Regex": "(?m:a)"})j"), "\"(?m:\" is unknown"},
      {split(R"j({"Regex": "(*COMMIT)a"})j"), "\"(*\" is unknown"},
      {R"({"added_tokens": [{"id": 4, "content": "x1"}]})", "id 4 stands for two tokens"},
      {R"({"added_tokens": [{"id": 980, "content": "x"}]})", "added token \"x\" has the ids"},
      {R"({"added_tokens": [{"id": 980, "content": "x1"}, {"id": 981, "content": "x1"}]})", "occurs twice"},
  };
  for (const auto& [patch, message] : cases) {
    Json file = Json::parse(file_of("gpt2"));
    file.merge_patch(Json::parse(patch));
    EXPECT_ERROR(BpeTokenizer(file.dump(), 976, 976), ErrorKind::data, message);
  }
  EXPECT_ERROR(BpeTokenizer("[]", 0, 0), ErrorKind::data, "not the JSON of a tokenizer");
  EXPECT_ERROR(BpeTokenizer(file_of("gpt2"), 977, 976), ErrorKind::data, "BOS or EOS has id 977");
  EXPECT_ERROR(BpeTokenizer(file_of("gpt2"), 976, 300), ErrorKind::data, "EOS is token 300");
  EXPECT_ERROR(BpeTokenizer(file_of("gpt2"), 0, 976), ErrorKind::data, "BOS is token 0, \"!\"");
  EXPECT_ERROR(json_of_ranks("QQ== 0\nQg== 0\n"), ErrorKind::data, "line 2: rank 0 occurs twice");
  EXPECT_ERROR(json_of_ranks("QQ== x\n"), ErrorKind::data, "line 1");
  EXPECT_ERROR(json_of_merges("{\"a\": 0}", "#version: 0.2\na\n"), ErrorKind::data, "\"a\" is not a pair of tokens");
}

TEST(BpeTokenizer, OptionsSayWhatIsMissing) {
  const TemporaryDirectory folder;
  EXPECT_ERROR(parse_tokenizer_option("hf:"), ErrorKind::config, "name its file");
  EXPECT_ERROR(parse_tokenizer_option("hf:" + folder.path().string()), ErrorKind::data, "no such file");
  EXPECT_ERROR(parse_tokenizer_option("bpe:" + folder.path().string()), ErrorKind::data, "vocab.json");
  EXPECT_ERROR(parse_tokenizer_option("tiktoken:/none"), ErrorKind::data, "no such file");
  EXPECT_ERROR(parse_tokenizer_option("hf:" + (kTokenizers / "qwen2").string()), ErrorKind::config,
               "alters text: it normalises characters");
}

// BOS and EOS of every form in which they stand beside a tokenizer.
TEST(BpeTokenizer, FindsBosAndEos) {
  struct Case {
    std::string tokenizer_config;
    std::string config;
    int32_t bos;
    int32_t eos;
  };
  const std::vector<Case> cases{
      {R"({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}})", "", 977, 978},
      {R"({"bos_token": null, "eos_token": "<|endoftext|>"})", R"({"bos_token_id": 977})", 976, 976},
      {R"({"eos_token": "<|im_end|>"})", R"({"bos_token_id": 977, "eos_token_id": 976})", 977, 978},
      {"", R"({"bos_token_id": 977, "eos_token_id": [978, 976]})", 977, 978},
      {"", "", 976, 976},
      {R"({"bos_token": "<new>", "eos_token": "<other>"})", "", 982, 981},
      {R"({"bos_token": "<new>", "eos_token": "<new>"})", "", 981, 981},
  };
  const TemporaryDirectory folder;
  write_file_durably(folder / "tokenizer.json", file_of("qwen2"));
  const auto put = [&](const char* name, const std::string& text) {
    fs::remove(folder / name);
    if (!text.empty()) write_file_durably(folder / name, text);
  };
  for (const Case& one : cases) {
    put("tokenizer_config.json", one.tokenizer_config);
    put("config.json", one.config);
    const auto tokenizer = parse_tokenizer_option("hf:" + folder.path().string(), {.allow_lossy = true});
    EXPECT_EQ(tokenizer->bos_id(), one.bos) << one.tokenizer_config << one.config;
    EXPECT_EQ(tokenizer->eos_id(), one.eos) << one.tokenizer_config << one.config;
    const auto stored = make_tokenizer(tokenizer->serialise(), "x", ErrorKind::data);
    EXPECT_EQ(stored->bos_id(), one.bos);
    EXPECT_EQ(stored->decode(std::vector<int32_t>{one.bos, 64, one.eos}), "a");
  }
  put("config.json", R"({"eos_token_id": 5000})");
  put("tokenizer_config.json", "");
  EXPECT_ERROR(parse_tokenizer_option("hf:" + folder.path().string(), {.allow_lossy = true}), ErrorKind::data,
               "names the id 5000");
  EXPECT_ERROR(make_tokenizer("hf\n1\n{}", "x.h5", ErrorKind::data), ErrorKind::data, "x.h5: the stored tokenizer");
}

TEST(BpeTokenizer, EveryByteComesBack) {
  std::mt19937 random(1);
  for (const char* name : {"gpt2", "llama3", "smollm2"}) {
    const auto tokenizer = opened(name);
    EXPECT_FALSE(tokenizer->lossy()) << name;
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (size_t i = 0; i < random() % 60; ++i) {
        const uint32_t kind = random() % 4;
        if (kind == 0) text += static_cast<char>(random());
        if (kind == 1) text += "\xE2\x82";  // a character that is cut off
        if (kind == 2) text += " the";
        if (kind == 3) text += "\xC3\xA9\n";
      }
      const std::vector<int32_t> ids = ids_of(*tokenizer, text);
      EXPECT_EQ(tokenizer->decode(ids), text) << name;
      EXPECT_EQ(tokenizer->decode_with_specials(ids), text) << name;
    }
    // Bytes that are no characters are ids of their own, and part of no pair.
    const std::vector<int32_t> bad = ids_of(*tokenizer, "\xFF\xFE \xC3\xC3");
    EXPECT_EQ(bad.size(), 5U) << name;
  }
}

TEST(BpeTokenizer, NoTextBecomesBosOrEos) {
  const auto tokenizer = opened("gpt2");
  for (const int32_t id : ids_of(*tokenizer, "a<|endoftext|>b <|endoftext|>")) EXPECT_NE(id, tokenizer->eos_id());
  // Even where a whole word is looked up first.
  Json file = Json::parse(file_of("llama3"));
  file["model"]["vocab"]["wordlike"] = 982;
  const BpeTokenizer other(file.dump(), 982, 982);
  for (const int32_t id : ids_of(other, "wordlike wordlike")) EXPECT_NE(id, 982);
}

// Classes are those of Unicode 16 but for U+180E, normalisation is that of Unicode 9, as in the package `tokenizers`.
TEST(BpeTokenizer, TakesCharactersAsOtherProgramsDo) {
  struct Sizes : PreTokenizer::Words {
    void add(std::string_view word, bool /*is_valid*/) override { all.push_back(word.size()); }
    std::vector<size_t> all;
  } words;
  const BpeTokenizer gpt2(file_of("gpt2"), 976, 976);
  gpt2.cut("a\U000105C0b \U00010D44 1 a\u180Eb \U00010D40", words);
  EXPECT_EQ(words.all, (std::vector<size_t>{6, 5, 2, 2, 3, 1, 5}));
  const TextNormalizer nfc({{.kind = NormalizerStep::Kind::nfc, .from = "", .to = ""}});
  const auto normalized = [&](std::string text) {
    nfc.normalize(text, false);
    return text;
  };
  EXPECT_EQ(normalized("e\u0301 a\u0301\u0327"), "\u00E9 \u00E1\u0327");
  EXPECT_EQ(normalized("\xFF"
                       "e\u0301"),
            "\xFF\u00E9");
  EXPECT_EQ(normalized("\u0345\U0001E4EC"), "\u0345\U0001E4EC");          // not put in order
  EXPECT_EQ(normalized("\U00011935\U00011930"), "\U00011935\U00011930");  // not composed
}

// The work grows as n log n, in words of any kind, and with texts that cannot be cut.
TEST(BpeTokenizer, LongWordsTakeNoLongTime) {
  std::mt19937 random(1);
  std::vector<std::string> texts(4);
  while (texts[0].size() < 500'000) {
    texts[0] += 'a';
    texts[1] += static_cast<char>('a' + random() % 26);
    texts[2] += ' ';
    texts[3] += static_cast<char>(0xFF);
  }
  for (const char* name : {"gpt2", "llama3", "llama2"}) {
    const auto tokenizer = opened(name);
    for (const std::string& text : texts) {
      std::vector<int32_t> parts;
      const double seconds = seconds_of([&] {
        std::string pending;
        for (size_t at = 0; at < text.size(); at += 65'536) {
          pending += text.substr(at, 65'536);
          const size_t whole = tokenizer->divisible_prefix(pending);
          tokenizer->encode(std::string_view(pending).substr(0, whole), parts);
          pending.erase(0, whole);
        }
        tokenizer->encode(pending, parts);
      });
      EXPECT_EQ(parts, ids_of(*tokenizer, text)) << name << text.substr(0, 3);
      EXPECT_LT(seconds, 20) << name << text.substr(0, 3);  // quadratic work takes hours
    }
  }
}

class BpeTraining : public testing::Test {
 protected:
  BpeTraining() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += fmt::format("the leaves of the quire {} are read by readers\n\n", i * 37);
    write_file_durably(folder_ / "a.txt", text + "no newline at the end");
    options_.inputs = {folder_ / "a.txt"};
    options_.kind = "bpe";
    options_.output = folder_ / "tokenizer.json";
    options_.model.vocabulary = 300;
  }
  const TemporaryDirectory folder_;
  TokenizerTraining options_;
};

TEST_F(BpeTraining, GivesATokenizerThatKeepsEveryByte) {
  const TokenizerTrainingReport report = train_tokenizer(options_, {});
  EXPECT_EQ(report.vocabulary, 300);
  EXPECT_EQ(report.sentences, 401);
  EXPECT_GT(report.bytes_per_token, 3);
  const auto tokenizer = parse_tokenizer_option("hf:" + options_.output.string());
  EXPECT_EQ(tokenizer->vocabulary_size(), 300);
  EXPECT_EQ(tokenizer->eos_id(), 299);
  EXPECT_EQ(tokenizer->bos_id(), 299);
  EXPECT_EQ(ids_of(*tokenizer, " leaves").size(), 1U);
  const std::string text = "other w\xC3\xB6rds <|endoftext|>\n";
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text)), text);
  // The same text gives the same file.
  const std::string first = read_text_file(options_.output);
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "exists already");
  options_.force = true;
  train_tokenizer(options_, {});
  EXPECT_EQ(read_text_file(options_.output), first);
}

TEST_F(BpeTraining, RefusesMoreIdsThanTheTextHas) {
  options_.model.vocabulary = 5000;
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "take a smaller --vocab-size or more text");
  EXPECT_FALSE(fs::exists(options_.output));
  write_file_durably(folder_ / "a.txt", "");
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::data, "no text to train a tokenizer on");
  write_file_durably(options_.output, "mine");
  options_.force = true;
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "is not a tokenizer.json");
}

}  // namespace
}  // namespace quire::test
