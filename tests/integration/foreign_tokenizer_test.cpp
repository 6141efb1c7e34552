// Follows GPT-2's kind of tokenizer, whose BOS is its EOS, from a text to generated text, with the program alone.
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

using nlohmann::ordered_json;

ordered_json object_of(const ProgramResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  ordered_json object = ordered_json::parse(result.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << result.out;
  return object;
}

TEST(ForeignTokenizer, BosThatIsEosBeginsAndEndsDocuments) {
  const TinyRun tiny;
  const std::string tokenizers = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/exchange/tokenizers/";
  // Copies, which are removed before the corpus is used: corpora and checkpoints hold the tokenizer.
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    std::filesystem::create_directories(tiny / "gpt2");
    std::filesystem::copy_file(tokenizers + "gpt2/" + name, tiny / "gpt2" / name);
  }
  // Every document ends after the same words, and the name of EOS in it is text.
  const std::string text = "the leaves of <|endoftext|> are read";
  std::string records;
  for (int i = 0; i < 30; ++i) records += ordered_json{{"text", text}}.dump() + "\n";
  write_text(tiny / "a.jsonl", records);
  write_text(tiny / "b.jsonl", records);
  const std::string tokenizer = "bpe:" + (tiny / "gpt2").string();
  const ordered_json prepared = object_of(run_quire(
      {"prepare", "--split", "train=" + (tiny / "a.jsonl").string(), "--split", "valid=" + (tiny / "b.jsonl").string(),
       "--allow-duplicates", "--tokenizer", tokenizer, "--output", tiny.corpus().string(), "--force", "--json"}));
  EXPECT_EQ(prepared["vocabulary"], 977);
  EXPECT_EQ(
      object_of(run_quire({"prepare", "--task", "recall", "--set", "length=1024", "--split", "train=2", "--tokenizer",
                           tokenizer, "--output", (tiny / "recall.h5").string(), "--json"}))["tokenizer"],
      "hf");
  std::filesystem::remove_all(tiny / "gpt2");

  const ProgramResult trained = tiny.train("run", {"schedule.steps=120", "optimizer.lr=2e-2", "data.pack=concat"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string run = (tiny / "run").string();
  const ordered_json result = object_of(run_quire({"eval", run, "--documents", "--json"}));
  EXPECT_EQ(result["documents"], 30);
  EXPECT_EQ(result["bytes"], 30 * static_cast<int64_t>(text.size()));
  EXPECT_EQ(result["tokens"], prepared["splits"]["valid"]["tokens"].get<int64_t>() + 30);  // EOS counts
  EXPECT_LT(result["bits_per_byte"].get<double>(), 0.3);

  // The model has learned where a document ends, and the generator stops there.
  const ordered_json generated = object_of(
      run_quire({"generate", run, "--prompt", "the leaves of", "--length", "400", "--temperature", "0", "--json"}));
  EXPECT_EQ(generated["text"], text.substr(13));
  EXPECT_LT(generated["tokens"], 40);

  const ProgramResult needle = run_quire({"needle", run, "--lengths", "128", "--depths", "1", "--samples", "1"});
  EXPECT_EQ(needle.code, 0) << needle.err;
}

}  // namespace
}  // namespace quire::test
