// Models that alter text give the ids that SentencePiece's own Python package gives of whole documents: ids that it
// once gave, kept in sentencepiece_ids.json, and those it gives now where it is installed. QUIRE_TEST_PYTHON names
// another Python than python3, and QUIRE_TEST_KEEP_IDS=1 keeps what it gives.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>

#include "core/files/file_io.h"
#include "core/json.h"
#include "data/corpus/corpus.h"
#include "data/corpus/prepare.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/data";

using Settings = std::unordered_map<std::string, std::string>;

// Returns the settings of each model besides the common ones.
const std::map<std::string, Settings>& models() {
  static const std::map<std::string, Settings> all{
      {"defaults", {}},
      {"bpe", {{"model_type", "bpe"}}},
      {"identity", {{"normalization_rule_name", "identity"}}},
      {"identity_bpe", {{"normalization_rule_name", "identity"}, {"model_type", "bpe"}, {"byte_fallback", "true"}}},
      {"nfkc", {{"normalization_rule_name", "nfkc"}, {"byte_fallback", "true"}}},
      {"folded", {{"normalization_rule_name", "nmt_nfkc_cf"}, {"add_dummy_prefix", "false"}}},
      {"symbols", {{"user_defined_symbols", "<sep>,\n,  "}, {"byte_fallback", "true"}}},
      {"spaces_kept", {{"remove_extra_whitespaces", "false"}, {"normalization_rule_name", "identity"}}},
      {"suffix", {{"treat_whitespace_as_suffix", "true"}, {"model_type", "bpe"}}},
      {"no_fallback",
       {{"add_dummy_prefix", "false"}, {"remove_extra_whitespaces", "false"}, {"normalization_rule_name", "identity"}}},
  };
  return all;
}

std::string trained(Settings settings) {
  struct Lines : sentencepiece::SentenceIterator {
    std::vector<std::string> lines{"the quire is a gathering of leaves, and the leaves are read one by one",
                                   "a reader with notes reads the leaves of the quire; the notes are kept",
                                   "Of the making of many books there is no end, and much study is a weariness"};
    size_t at = 0;
    bool done() const override { return at == lines.size(); }
    void Next() override { ++at; }
    const std::string& value() const override { return lines[at]; }
    sentencepiece::util::Status status() const override { return {}; }
  } lines;
  settings.insert({{"vocab_size", "320"}, {"minloglevel", "2"}, {"hard_vocab_limit", "false"}, {"num_threads", "1"}});
  std::string bytes;
  EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(settings, &lines, &bytes).ok());
  return bytes;
}

// Lines, blank lines, spaces at their ends and between, characters that normalisation changes, symbols of one model,
// and lines longer than what other tokenizers encode at once.
std::vector<std::string> texts() {
  std::vector<std::string> all{
      "the quire is a gathering\nof leaves\n\n  and the   notes \n are kept\r\n\tin many books<sep>of\xC2\xA0notes\n",
      "\n the reader \xEF\xAC\x81nds \xEF\xBC\xA1 caf\xC3\xA9 e\xCC\x81 \xE3\x80\x80 \xF0\x9F\x98\x80 the end", " \n ",
      "one"};
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += "the leaves of the quire, read by many readers" + std::string(i % 7, ' ');
  lines += "\n";
  for (int i = 0; i < 60; ++i) lines += "many notes of book <sep> and  study\n";
  all.push_back(lines);
  all.push_back(std::string(6000, 'r') + "\nThe end\n");
  return all;
}

// Encodes in pieces, as a document is read.
std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  std::string pending;
  for (size_t at = 0; at < text.size(); at += 1000) {
    pending += text.substr(at, 1000);
    const size_t whole = tokenizer.divisible_prefix(pending);
    tokenizer.encode(std::string_view(pending).substr(0, whole), ids);
    pending.erase(0, whole);
  }
  tokenizer.encode(pending, ids);
  return ids;
}

// The program's standard output; nothing when it says that something is missing.
std::optional<std::string> output_of(const std::string& command) {
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return out;
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) << command;
  return std::nullopt;
}

std::string checksum_of_text(const std::string& text) {
  return checksum_of(std::as_bytes(std::span(text)));
}

// Keeps a checksum when there are many ids.
nlohmann::json kept(const std::vector<int32_t>& ids) {
  constexpr size_t kMaxListed = 150;
  if (ids.size() <= kMaxListed) return ids;
  return checksum_of(std::as_bytes(std::span(ids)));
}

void expect_ids(const nlohmann::json& ids, const std::string& whose) {
  const std::vector<std::string> given = texts();
  for (const auto& [name, settings] : models()) {
    const SentencePieceTokenizer tokenizer(trained(settings));
    EXPECT_TRUE(tokenizer.lossy()) << name;
    for (size_t i = 0; i < given.size(); ++i) {
      const nlohmann::json& expected = ids.at(name).at(i);
      const std::vector<int32_t> found = ids_of(tokenizer, given[i]);
      EXPECT_EQ(expected.is_string() ? kept(found) : nlohmann::json(found), expected)
          << whose << " of model " << name << ", text " << i;
    }
  }
}

TEST(SentencePieceIds, AreThoseThatPythonGave) {
  const nlohmann::json golden = parse_json(read_text_file(kFolder / "sentencepiece_ids.json"));
  for (const auto& [name, settings] : models()) {
    if (golden.at("models").at(name) == checksum_of_text(trained(settings))) continue;
    GTEST_SKIP() << "another version of SentencePiece has trained another model " << name;
  }
  expect_ids(golden.at("ids"), "ids of Python's sentencepiece " + golden.at("version").get<std::string>());
}

TEST(SentencePieceIds, AreThoseThatPythonGives) {
  const test::TemporaryDirectory folder;
  const std::vector<std::string> given = texts();
  for (const auto& [name, settings] : models()) write_file_durably(folder / (name + ".model"), trained(settings));
  for (size_t i = 0; i < given.size(); ++i) write_file_durably(folder / fmt::format("text.{}", i), given[i]);
  const char* const python = std::getenv("QUIRE_TEST_PYTHON");
  const std::optional<std::string> out =
      output_of(fmt::format("{} '{}' '{}' 2>/dev/null", python != nullptr ? python : "python3",
                            (kFolder / "sentencepiece_ids.py").string(), folder.path().string()));
  if (!out) GTEST_SKIP() << "python3 has no package sentencepiece";
  nlohmann::json golden = parse_json(*out);
  expect_ids(golden.at("ids"), "ids of Python's sentencepiece " + golden.at("version").get<std::string>());
  if (std::getenv("QUIRE_TEST_KEEP_IDS") == nullptr) return;
  for (const auto& [name, settings] : models()) {
    golden["models"][name] = checksum_of_text(trained(settings));
    for (nlohmann::json& ids : golden["ids"][name]) ids = kept(ids.get<std::vector<int32_t>>());
  }
  write_file_durably(kFolder / "sentencepiece_ids.json", golden.dump() + "\n");
}

// Through quire prepare: a document has one prefix, however it was read.
TEST(SentencePieceIds, ACorpusHoldsThem) {
  const test::TemporaryDirectory folder;
  write_file_durably(folder / "m", trained({{"normalization_rule_name", "identity"}, {"byte_fallback", "true"}}));
  std::string text;
  while (text.size() < 2'500'000) text += "the leaves of the quire, read by many readers\n";
  write_file_durably(folder / "a.txt", text);
  PrepareOptions options;
  options.inputs = {folder / "a.txt"};
  options.tokenizer = "spm:" + (folder / "m").string();
  options.output = folder / "c.h5";
  options.lossy_tokenizer = true;
  prepare_corpus(options, {});
  const auto corpus = Corpus::open(options.output);
  const Split& split = corpus->split("train");
  std::vector<int32_t> ids(static_cast<size_t>(split.length(0)));
  split.tokens(0, 0, split.length(0), ids.data());
  std::vector<int32_t> whole;
  SentencePieceModel::parse(read_text_file(folder / "m"))->encode(text, whole);
  EXPECT_TRUE(ids == whole);
  EXPECT_EQ(corpus->tokenizer().decode(ids), " " + text);
}

}  // namespace
}  // namespace quire
