#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <random>

#include "core/files/file_io.h"
#include "data/corpus/prepare.h"
#include "data/corpus/tokenizer_training.h"
#include "data/sources/text_units.h"
#include "data/tasks/make_task.h"
#include "data/tasks/needle_task.h"
#include "data/tokenizers/make_tokenizer.h"
#include "data/tokenizers/sentencepiece_spec.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::small_sentencepiece;
using test::TemporaryDirectory;

std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// A model as others train them, with settings of the library's own.
std::string foreign_model(std::unordered_map<std::string, std::string> settings) {
  struct Lines : sentencepiece::SentenceIterator {
    std::vector<std::string> lines{"the quire is a gathering of leaves", "a reader with notes", "\xEF\xAC\x81n"};
    size_t at = 0;
    bool done() const override { return at == lines.size(); }
    void Next() override { ++at; }
    const std::string& value() const override { return lines[at]; }
    sentencepiece::util::Status status() const override { return {}; }
  } lines;
  settings.insert({{"vocab_size", "320"}, {"model_type", "bpe"}, {"minloglevel", "2"}, {"hard_vocab_limit", "false"}});
  std::string bytes;
  EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(settings, &lines, &bytes).ok());
  return bytes;
}

const std::vector<std::string>& nasty_texts() {
  static const std::vector<std::string> texts{
      "",
      " ",
      "   ",
      "two  spaces   three",
      " leading and trailing ",
      "\n",
      "\n\n\n",
      "one\ntwo\n",
      "carriage\r\nreturns\r",
      "\ttabs\t\there",
      "\xE2\x96\x81",  // U+2581, SentencePiece's own mark for a space
      "the\xE2\x96\x81quire \xE2\x96\x81 of",
      "\xE2\x96\x85",  // U+2585, its mark for the unknown
      std::string("nul\0inside\0", 11),
      "\xF0\x9F\x98\x80 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",  // emoji, one joined of two
      "e\xCC\x81 \xC3\xA9",                                             // combined and composed
      "\xEF\xBC\xA1\xEF\xAC\x81\xC2\xA0\xE3\x80\x80",  // normalisation would change these: full width, ligature, spaces
      "\xEF\xBB\xBFmark",
      "\xEF\xBF\xBD \xEF\xBF\xBE \xF4\x8F\xBF\xBF",
      "<s> </s> <unk> <0x41> <pad>",
      "\x01\x7F\xC2\x85\xE2\x80\xA8",
      "invalid \xFF\xFE \xC3 \xED\xA0\x80 \xF4\x90\x80\x80 end",  // not UTF-8: --any-bytes
      std::string(10'000, 'x'),
      std::string(10'000, ' '),
  };
  return texts;
}

class SentencePieceKinds : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, SentencePieceKinds, testing::Values("unigram", "bpe"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(SentencePieceKinds, EveryTextComesBackByteForByte) {
  const SentencePieceTokenizer tokenizer(small_sentencepiece(GetParam()));
  EXPECT_FALSE(tokenizer.lossy());
  std::string all;
  for (const std::string& text : nasty_texts()) {
    const std::vector<int32_t> ids = encoded(tokenizer, text);
    EXPECT_EQ(tokenizer.decode(ids), text);
    for (const int32_t id : ids) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer.content_size());
      ASSERT_NE(id, tokenizer.bos_id());
      ASSERT_NE(id, tokenizer.eos_id());
      ASSERT_NE(id, 0);  // the unknown
    }
    // Token by token, as text is generated.
    std::string text_by_token;
    for (const int32_t id : ids) text_by_token += tokenizer.decode({&id, 1});
    EXPECT_EQ(text_by_token, text);
    all += text + "\n";
  }
  EXPECT_EQ(tokenizer.decode(encoded(tokenizer, all)), all);
  // It is more than bytes.
  EXPECT_LT(encoded(tokenizer, "the quire is a gathering of leaves").size(), 25U);
}

TEST_P(SentencePieceKinds, RandomTextsComeBack) {
  const SentencePieceTokenizer tokenizer(small_sentencepiece(GetParam()));
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t length = random() % 60; length > 0; --length) {
      switch (random() % 4) {
        case 0:
          text += "the quire"[random() % 9];
          break;
        case 1:
          text += " \n\t\r"[random() % 4];
          break;
        case 2:
          text += nasty_texts()[random() % 22];
          break;
        default:
          text += static_cast<char>(random() % 256);
      }
    }
    ASSERT_EQ(tokenizer.decode(encoded(tokenizer, text)), text);
  }
}

TEST(SentencePieceTokenizer, PiecesOfATextGiveTheTokensOfTheWhole) {
  const SentencePieceTokenizer tokenizer(small_sentencepiece());
  std::string text;
  while (text.size() < 20'000) {
    text += text.size() % 3 == 0 ? "the leaves of the quire\n" : text.size() % 3 == 1 ? "many books, " : "t\xC3\xA9";
  }
  text += std::string(9000, 'r');
  const std::vector<int32_t> whole = encoded(tokenizer, text);
  for (const size_t chunk : {1, 7, 1000, 4097, 8000}) {
    std::vector<int32_t> ids;
    std::string pending;
    for (size_t at = 0; at < text.size(); at += chunk) {
      pending += text.substr(at, chunk);
      const size_t count = tokenizer.divisible_prefix(pending);
      tokenizer.encode(std::string_view(pending).substr(0, count), ids);
      pending.erase(0, count);
    }
    tokenizer.encode(pending, ids);
    EXPECT_EQ(ids, whole) << chunk;
  }
}

TEST(SentencePieceTokenizer, SpecialTokens) {
  const SentencePieceTokenizer tokenizer(small_sentencepiece());
  EXPECT_EQ(tokenizer.vocabulary_size(), 300);
  EXPECT_EQ(tokenizer.content_size(), 300);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1, 2}), "");
  EXPECT_ERROR(tokenizer.decode(std::vector<int32_t>{300}), ErrorKind::data, "no token has id 300");
  EXPECT_ERROR(tokenizer.decode(std::vector<int32_t>{-1}), ErrorKind::data, "no token has id -1");
}

TEST(SentencePieceTokenizer, AModelWithoutBosAndEosGetsThem) {
  const SentencePieceTokenizer tokenizer(foreign_model({{"bos_id", "-1"}, {"eos_id", "-1"}}));
  EXPECT_EQ(tokenizer.vocabulary_size(), tokenizer.content_size() + 2);
  EXPECT_EQ(tokenizer.bos_id(), tokenizer.content_size());
  EXPECT_EQ(tokenizer.eos_id(), tokenizer.content_size() + 1);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{tokenizer.eos_id()}), "");
}

TEST(SentencePieceTokenizer, ANewlineWithoutAPieceIsAByte) {
  const SentencePieceTokenizer tokenizer(foreign_model({{"byte_fallback", "true"},
                                                        {"normalization_rule_name", "identity"},
                                                        {"add_dummy_prefix", "false"},
                                                        {"remove_extra_whitespaces", "false"}}));
  EXPECT_FALSE(tokenizer.lossy());
  for (const std::string& text : nasty_texts()) EXPECT_EQ(tokenizer.decode(encoded(tokenizer, text)), text);
}

TEST(SentencePieceTokenizer, IsRebuiltFromItsText) {
  const SentencePieceTokenizer tokenizer(small_sentencepiece());
  const auto again = make_tokenizer(tokenizer.serialise(), "a corpus", ErrorKind::data);
  EXPECT_EQ(again->serialise(), tokenizer.serialise());
  EXPECT_EQ(encoded(*again, "the quire"), encoded(tokenizer, "the quire"));
  std::string damaged = tokenizer.serialise();
  damaged[50] = 'x';
  EXPECT_ERROR(make_tokenizer(damaged, "a corpus", ErrorKind::data), ErrorKind::data,
               "a corpus: the stored SentencePiece model is damaged");
  damaged.pop_back();
  EXPECT_ERROR(make_tokenizer(damaged, "here", ErrorKind::checkpoint), ErrorKind::checkpoint, "is damaged");
}

TEST(SentencePieceTokenizer, ModelsThatAlterTextAreRefusedUnlessAllowed) {
  const TemporaryDirectory folder;
  const auto refused = [&](const std::unordered_map<std::string, std::string>& settings, const std::string& how) {
    write_file_durably(folder / "m", foreign_model(settings));
    const std::string option = "spm:" + (folder / "m").string();
    EXPECT_ERROR(parse_tokenizer_option(option), ErrorKind::config, "m: this model alters text: " + how);
    const auto tokenizer = parse_tokenizer_option(option, {.allow_lossy = true});
    EXPECT_TRUE(tokenizer->lossy());
    for (const std::string& text : nasty_texts()) (void)tokenizer->decode(encoded(*tokenizer, text));
    EXPECT_FALSE(encoded(*tokenizer, "the quire\nof leaves").empty());
  };
  refused({}, "it normalises (nmt_nfkc), it adds a space in front, it removes spaces, it has no byte fallback");
  const std::unordered_map<std::string, std::string> exact{{"byte_fallback", "true"},
                                                           {"normalization_rule_name", "identity"},
                                                           {"add_dummy_prefix", "false"},
                                                           {"remove_extra_whitespaces", "false"}};
  for (const auto& [key, value, how] : {std::tuple{"byte_fallback", "false", "it has no byte fallback"},
                                        {"normalization_rule_name", "nfkc", "it normalises (nfkc)"},
                                        {"add_dummy_prefix", "true", "it adds a space in front"},
                                        {"remove_extra_whitespaces", "true", "it removes spaces"}}) {
    std::unordered_map<std::string, std::string> settings = exact;
    settings[key] = value;
    refused(settings, std::string(how) + ";");
  }
}

TEST(SentencePieceTokenizer, FilesThatAreNoModels) {
  const TemporaryDirectory folder;
  const std::string option = "spm:" + (folder / "m").string();
  EXPECT_ERROR(parse_tokenizer_option("spm"), ErrorKind::config, "name a model file, as in spm:FILE");
  EXPECT_ERROR(parse_tokenizer_option(option), ErrorKind::data, "m: no such file");
  EXPECT_ERROR(parse_tokenizer_option("spm:" + folder.path().string()), ErrorKind::data, "no such file");
  const std::string model = small_sentencepiece();
  for (const std::string& bytes : {std::string(), std::string("some text\n"), std::string(1000, '\0'),
                                   std::string(1000, '\xFF'), model.substr(0, model.size() / 2), model.substr(1)}) {
    write_file_durably(folder / "m", bytes);
    EXPECT_ERROR(parse_tokenizer_option(option), ErrorKind::data, "m: not a SentencePiece model, or a damaged one");
  }
}

TEST(SentencePieceSpec, DamagedMessagesAreFound) {
  const std::string model = small_sentencepiece();
  const SentencePieceSpec spec = read_sentencepiece_spec(model);
  EXPECT_EQ(spec.normalization, "identity");
  EXPECT_FALSE(spec.has_rules);
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = model.substr(0, random() % model.size());
    for (int i = 0; i < 3 && !bytes.empty(); ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      (void)read_sentencepiece_spec(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
    }
  }
}

class TokenizerTrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "books");
    std::string text = "tabs\tand \xE2\x96\x81 and \xE2\x96\x85, and nul\n";
    text += '\0';
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i) + " of a gathering of leaves\n";
    write_file_durably(folder_ / "books/a.txt", text);
    write_file_durably(folder_ / "books/b.jsonl", "{\"text\": \"the text of a record\"}\n");
    options_.inputs = {folder_ / "books"};
    options_.output = folder_ / "spm.model";
    options_.model.vocabulary = 320;
  }

  TemporaryDirectory folder_;
  TokenizerTraining options_;
};

TEST_F(TokenizerTrainingTest, GivesOneModelForOneText) {
  int64_t last = 0;
  const TokenizerTrainingReport report = train_tokenizer(options_, [&](int64_t bytes, int64_t) { last = bytes; });
  EXPECT_EQ(report.vocabulary, 320);
  EXPECT_EQ(report.sentences, 204);  // the first line makes three
  EXPECT_GT(report.bytes_per_token, 1.2);
  EXPECT_GT(last, 5000);
  const std::string first = read_text_file(options_.output);
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "exists already; use --force");
  options_.force = true;
  train_tokenizer(options_, {});
  EXPECT_TRUE(read_text_file(options_.output) == first);
  const auto tokenizer = parse_tokenizer_option("spm:" + options_.output.string());
  const std::string text = read_text_file(folder_ / "books/a.txt");
  EXPECT_TRUE(tokenizer->decode(encoded(*tokenizer, text)) == text);
}

// The same lines come in the same order from a corpus of bytes and from one of pieces.
TEST_F(TokenizerTrainingTest, ReadsTheTrainSplitOfACorpus) {
  train_tokenizer(options_, {});
  const std::string first = read_text_file(options_.output);
  PrepareOptions prepare;
  prepare.inputs = options_.inputs;
  for (const std::string& kind : {std::string("byte"), "spm:" + options_.output.string()}) {
    prepare.tokenizer = kind;
    prepare.output = folder_ / "corpus.h5";
    prepare.force = true;
    prepare_corpus(prepare, {});
    TokenizerTraining again = options_;
    again.inputs = {prepare.output};
    again.output = folder_ / "again.model";
    again.force = true;
    int64_t last = 0;
    const TokenizerTrainingReport report = train_tokenizer(again, [&](int64_t bytes, int64_t total) {
      last = bytes;
      EXPECT_LE(bytes, total);
    });
    EXPECT_EQ(report.sentences, 204);
    EXPECT_GT(last, 5000);
    EXPECT_TRUE(read_text_file(again.output) == first);
  }
}

TEST_F(TokenizerTrainingTest, RefusesCorporaItCannotRead) {
  options_.inputs = {folder_ / "none.h5"};
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::data, "none.h5");
  write_file_durably(folder_ / "books/a.txt", "caf\xE9");
  PrepareOptions prepare;
  prepare.inputs = {folder_ / "books"};
  prepare.output = folder_ / "corpus.h5";
  prepare.any_bytes = true;
  prepare_corpus(prepare, {});
  options_.inputs = {prepare.output};
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::data, "corpus.h5: document a is not UTF-8");
  prepare.splits = {"valid=" + (folder_ / "books").string()};
  prepare.inputs = {};
  prepare.force = true;
  prepare_corpus(prepare, {});
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "train");
}

TEST_F(TokenizerTrainingTest, ReplacesModelsOnly) {
  options_.force = true;
  options_.output = folder_ / "books/a.txt";
  const std::string before = read_text_file(options_.output);
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "exists already and is not a SentencePiece model");
  EXPECT_EQ(read_text_file(options_.output), before);
  options_.output = "/dev/null";
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "/dev/null: is a device");
  options_.output = folder_ / "link";
  std::filesystem::create_symlink(folder_ / "books/a.txt", options_.output);
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config, "link: is a link");
}

TEST_F(TokenizerTrainingTest, UsesAChoiceOfManyLines) {
  options_.max_sentences = 60;
  options_.model.vocabulary = 300;
  options_.model.model = "bpe";
  const TokenizerTrainingReport report = train_tokenizer(options_, {});
  EXPECT_EQ(report.sentences, 204);
  EXPECT_EQ(report.used_sentences, 60);
  const std::string first = read_text_file(options_.output);
  options_.force = true;
  train_tokenizer(options_, {});
  EXPECT_TRUE(read_text_file(options_.output) == first);
}

TEST_F(TokenizerTrainingTest, RefusesWhatCannotBeTrained) {
  options_.model.vocabulary = 100'000;
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config,
               "the tokenizer cannot be trained: Vocabulary size too high (100000). Please set it to a value <= ");
  options_.model.vocabulary = 262;
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::config,
               "--vocab-size or decrease character_coverage with --character-coverage option");
  write_file_durably(folder_ / "books/a.txt", "caf\xE9");
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::data, "a.txt: invalid UTF-8 at byte 3");
  write_file_durably(folder_ / "books/a.txt", "\n\n");
  options_.inputs = {folder_ / "books/a.txt"};
  EXPECT_NO_THROW(std::filesystem::remove(folder_ / "books/b.jsonl"));
  EXPECT_ERROR(train_tokenizer(options_, {}), ErrorKind::data, "there is no text to train a tokenizer on");
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

// No piece holds a space then: it becomes its byte token.
TEST_F(TokenizerTrainingTest, LearnsTextWithoutSpaces) {
  std::string genome;
  std::string chinese;
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    genome += "ACGT"[random() % 4];
    if (i % 100 == 99) genome += '\n';
    const char32_t character = 0x4E00 + static_cast<char32_t>(random() % 40 * (random() % 3));
    chinese += {static_cast<char>(0xE0 | (character >> 12)), static_cast<char>(0x80 | ((character >> 6) & 63)),
                static_cast<char>(0x80 | (character & 63))};
    if (i % 50 == 49) chinese += "\xE3\x80\x82\n";
  }
  std::filesystem::remove(folder_ / "books/b.jsonl");
  options_.force = true;
  for (const std::string& text : {genome, chinese, genome + "one space\n"}) {
    write_file_durably(folder_ / "books/a.txt", text);
    for (const char* const model : {"unigram", "bpe"}) {
      options_.model.model = model;
      options_.model.character_coverage = 0.9995;
      options_.model.vocabulary = 360;
      train_tokenizer(options_, {});
      const auto tokenizer = parse_tokenizer_option("spm:" + options_.output.string());
      EXPECT_FALSE(tokenizer->lossy());
      std::string spaced = text.substr(0, 3000);
      for (size_t at = 30; at < spaced.size(); at += 300) spaced.insert(spaced.begin() + static_cast<long>(at), 2, ' ');
      for (const std::string& given : {text, spaced}) EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, given)), given);
      for (const std::string& given : nasty_texts()) EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, given)), given);
      const std::vector<int32_t> space = encoded(*tokenizer, " ");
      EXPECT_EQ(space.size(), 1U) << model;
      std::vector<int32_t> three = encoded(*tokenizer, "  ");
      EXPECT_EQ(three, (std::vector<int32_t>{space[0], space[0]})) << model;
    }
  }
}

// An indentation of eight spaces or of up to eight tabs is one token; eight without that.
TEST_F(TokenizerTrainingTest, LearnsRunsOfSpacesWhenAsked) {
  const char* const words[] = {"gather", "leaf",  "quire", "reader", "notes",
                               "margin", "index", "count", "total",  "value"};
  std::string code;
  for (int i = 0; i < 200; ++i) {
    code += fmt::format("for {} in {}({}):\n\t\t{} = {} + {}\n        {}({})\n", words[i % 10], words[i * 7 % 9], i,
                        words[i * 3 % 7], words[i * i % 10], i * i, words[i * 5 % 8], words[i % 6]);
  }
  write_file_durably(folder_ / "books/a.txt", code);
  options_.model.vocabulary = 348;
  options_.force = true;
  const std::string indentation(8, ' ');
  for (const char* const model : {"unigram", "bpe"}) {
    options_.model.model = model;
    options_.model.space_runs = false;
    const double apart = train_tokenizer(options_, {}).bytes_per_token;
    for (const std::string& run : {indentation, std::string(8, '\t')}) {
      EXPECT_EQ(encoded(*parse_tokenizer_option("spm:" + options_.output.string()), run).size(), 8U) << model;
    }
    options_.model.space_runs = true;
    EXPECT_GT(train_tokenizer(options_, {}).bytes_per_token, apart) << model;
    const auto tokenizer = parse_tokenizer_option("spm:" + options_.output.string());
    EXPECT_EQ(encoded(*tokenizer, indentation).size(), 1U) << model;
    for (const size_t tabs : {1, 2, 3, 8}) EXPECT_EQ(encoded(*tokenizer, std::string(tabs, '\t')).size(), 1U) << model;
    EXPECT_EQ(encoded(*tokenizer, std::string(9, '\t')).size(), 2U) << model;
    for (const std::string& text : nasty_texts())
      EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, text)), text) << model;
    EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, code)), code) << model;
  }
}

// Keys are the same tokens where they are hidden and where they are the answer; a model without them is refused.
TEST(SentencePieceTokenizer, WritesKeysAndFactsOrIsRefused) {
  const SentencePieceTokenizer tokenizer(small_sentencepiece());
  const std::unique_ptr<Filler> filler = make_prose_filler(tokenizer);
  for (const char* alphabet : {"digits", "letters", "tokens"}) {
    TaskConfig config{.task = "passkey", .length = 700};
    config.alphabet = std::string_view(alphabet) == "digits"    ? Alphabet::digits
                      : std::string_view(alphabet) == "letters" ? Alphabet::letters
                                                                : Alphabet::tokens;
    const auto document = NeedleTask(config, {tokenizer, *filler, 1, 0}, "here").needle(3);
    std::vector<int32_t> ids(699);
    document->tokens(0, 699, ids.data());
    const std::vector<int32_t>& key = document->answer();
    EXPECT_EQ(key.size(), 5U);
    const auto hidden = std::search(ids.begin() + document->needle_begin(), ids.end(), key.begin(), key.end());
    EXPECT_LT(hidden - ids.begin(), document->needle_begin() + 30) << alphabet;
    EXPECT_TRUE(std::equal(key.begin(), key.end(), ids.end() - 5)) << alphabet;
  }
  const TaskConfig recall{.task = "recall", .length = 2000};
  EXPECT_EQ(make_task(recall, {tokenizer, *filler, 1, 0}, "here")->document(0)->length(), 1999);

  const SentencePieceTokenizer foreign(foreign_model({}));
  EXPECT_ERROR(make_task({.task = "passkey"}, {foreign, *filler, 1, 0}, "here"), ErrorKind::config,
               "here: the tokenizer (spm) cannot write the key: \"0\"");
  EXPECT_ERROR(make_task(recall, {foreign, *filler, 1, 0}, "here"), ErrorKind::config, "cannot write the facts");
}

}  // namespace
}  // namespace quire
