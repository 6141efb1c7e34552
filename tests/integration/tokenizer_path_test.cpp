// Follows a SentencePiece tokenizer from its training to generated text, with the program alone.
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

using nlohmann::ordered_json;

ordered_json only_object(const ProgramResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  ordered_json object = ordered_json::parse(result.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << result.out;
  return object;
}

TEST(TokenizerPath, FromTextToText) {
  const TinyRun tiny;
  std::filesystem::create_directories(tiny / "books");
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text +=
        "leaf " + std::to_string(i) + " of the quire:  a gathering of leaves; \xC3\xA9t\xC3\xA9\r\n\n\t\xE2\x96\x81";
  }
  write_text(tiny / "books/one.txt", text);
  write_text(tiny / "books/two.txt", text.substr(0, 400));
  write_text(tiny / "held.txt", text.substr(0, 700));
  const std::string model = (tiny / "spm.model").string();
  const ordered_json trained =
      only_object(run_quire({"tokenizer", "train", "--input", (tiny / "books").string(), "--vocab-size", "300",
                             "--model", "bpe", "--output", model, "--json"}));
  EXPECT_EQ(trained["vocabulary"], 300);
  EXPECT_GT(trained["bytes_per_token"].get<double>(), 1.3);

  const auto prepare = [&](const std::string& tokenizer) {
    return only_object(
        run_quire({"prepare", "--input", (tiny / "books").string(), "--split", "valid=" + (tiny / "held.txt").string(),
                   "--tokenizer", tokenizer, "--output", tiny.corpus().string(), "--force", "--json"}));
  };
  const ordered_json bytes = prepare("byte");
  const ordered_json pieces = prepare("spm:" + model);
  EXPECT_EQ(pieces["vocabulary"], 300);
  for (const char* split : {"train", "valid"}) {
    for (const char* key : {"documents", "bytes", "words"}) {
      EXPECT_EQ(pieces["splits"][split][key], bytes["splits"][split][key]) << split << " " << key;
    }
    EXPECT_LT(pieces["splits"][split]["tokens"], bytes["splits"][split]["tokens"]);
  }
  std::filesystem::remove(model);  // corpora and checkpoints hold it

  ASSERT_EQ(tiny.train("run", {"schedule.steps=20"}).code, 0);
  const std::string run = (tiny / "run").string();
  const ordered_json result = only_object(run_quire({"eval", run, "--json"}));
  EXPECT_EQ(result["bytes"], 700);
  EXPECT_EQ(result["tokens"], pieces["splits"]["valid"]["tokens"].get<int64_t>() + 1);
  EXPECT_NEAR(result["bits_per_byte"].get<double>(), result["nll"].get<double>() / std::log(2.0) / 700, 1e-9);

  // Every token counts the bytes that it writes.
  const ordered_json by_position = only_object(run_quire({"eval", run, "--json", "--by-position"}))["by_position"];
  int64_t written = 0;
  for (const ordered_json& bin : by_position) written += bin["bytes"].get<int64_t>();
  EXPECT_EQ(written, 700);

  const std::string prompt = "leaf 7  of\n\n\t\xE2\x96\x81 the";
  const ProgramResult generated = run_quire({"generate", run, "--prompt", prompt, "--echo", "--length", "30"});
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_EQ(generated.out.rfind(prompt, 0), 0U) << generated.out;
  EXPECT_EQ(generated.out.find("\xE2\x96\x81", prompt.size()), std::string::npos) << "a mark that stands for a space";

  // Another tokenizer is another corpus.
  prepare("byte");
  const ProgramResult refused = run_quire({"eval", run});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.err.find("its tokenizer (byte) is not the one the model was trained with (spm)"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::test
