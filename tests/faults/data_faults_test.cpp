// Corpora and documents that cannot be used.
#include "tests/faults/expect_fault.h"
#include "tests/support/compress.h"
#include "tests/support/handmade_corpus.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

void flip_bit(const fs::path& path, size_t at) {
  std::string bytes = read_text(path);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 4);
  write_text(path, bytes);
}

TEST(DataFaults, MissingEmptyTruncatedAndDamagedCorpora) {
  const TinyRun tiny;
  EXPECT_FAULT(tiny.train("run", {"data.corpus=" + (tiny / "absent.h5").string()}), 3, "quire prepare");
  EXPECT_FAULT(tiny.train("run", {"data.corpus=\"\""}), 2, "data.corpus");
  const std::string whole = read_text(tiny.corpus());
  write_text(tiny.corpus(), "");
  EXPECT_FAULT(tiny.train("run"), 3, "0 bytes, but its manifest says");
  write_text(tiny.corpus(), whole.substr(0, whole.size() / 2));
  EXPECT_FAULT(tiny.train("run"), 3, "truncated or replaced");
  write_text(tiny.corpus(), whole);
  flip_bit(tiny.corpus(), whole.size() / 2);
  EXPECT_FAULT(tiny.train("run"), 3, "damaged");
  write_text(tiny.corpus(), whole);
  fs::remove(tiny / "corpus.h5.manifest");
  EXPECT_FAULT(tiny.train("run"), 3, "the corpus has no manifest");
  EXPECT_FALSE(fs::exists(tiny / "run"));
}

TEST(DataFaults, ASplitThatIsNotThere) {
  const TinyRun tiny;
  EXPECT_FAULT(tiny.train("run", {"data.split=tain"}), 2, "no split \"tain\"; there is: train, valid");
  EXPECT_FAULT(tiny.train("run", {"evaluate.split=test", "evaluate.every=5"}), 2, "no split \"test\"");
  EXPECT_FALSE(fs::exists(tiny / "run"));
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  EXPECT_FAULT(run_quire({"eval", (tiny / "run").string(), "--split", "test"}), 2, "no split \"test\"");
}

TEST(DataFaults, ATokenBeyondTheVocabulary) {
  const TinyRun tiny;
  HandmadeCorpus corpus;
  corpus.tokens = Tensor::from<uint16_t>({1, 3, 258}, {3});
  corpus.write(tiny.corpus());
  EXPECT_FAULT(tiny.train("run"), 3, "token 2 is 258, beyond the vocabulary of 258");
  EXPECT_FALSE(fs::exists(tiny / "run"));
}

TEST(DataFaults, PrepareRefusesEmptyFoldersAndBrokenText) {
  const TinyRun tiny;
  const std::string output = (tiny / "new.h5").string();
  const auto prepare = [&](const std::string& input) {
    return run_quire({"prepare", "--input", (tiny / input).string(), "--output", output});
  };
  fs::create_directory(tiny / "empty");
  EXPECT_FAULT(prepare("empty"), 3, "no document in this folder");
  EXPECT_FAULT(prepare("absent"), 3, "no such file or folder");
  write_text(tiny / "blank.txt", "");
  EXPECT_FAULT(prepare("blank.txt"), 3, "empty");
  write_text(tiny / "broken.txt", "good\xFF bad");
  EXPECT_FAULT(prepare("broken.txt"), 3, "broken.txt: invalid UTF-8 at byte 4");
  write_text(tiny / "cut.txt", "caf\xC3");
  EXPECT_FAULT(prepare("cut.txt"), 3, "cut.txt: invalid UTF-8 at byte 3");
  for (const auto& entry : fs::directory_iterator(tiny / "")) {
    EXPECT_EQ(entry.path().filename().string().find("new.h5"), std::string::npos) << entry.path();
  }
}

TEST(DataFaults, PrepareRefusesBadRecordsAndCompressedFiles) {
  const TinyRun tiny;
  const auto prepare = [&](const std::string& input, const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments{"prepare", "--input", (tiny / input).string(), "--output",
                                       (tiny / "new.h5").string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_quire(arguments);
  };
  write_text(tiny / "r.jsonl", "{\"text\": \"good\"}\n{\"text\": \"bad}\n");
  EXPECT_FAULT(prepare("r.jsonl"), 3, "r.jsonl: line 2: not a JSON object: column");
  EXPECT_FAULT(prepare("r.jsonl", {"--text-key", "body"}), 3, "line 1: the record has no key \"body\"");
  write_text(tiny / "r.jsonl", "{\"text\": \"\\ud834 alone\"}\n");
  EXPECT_FAULT(prepare("r.jsonl", {"--any-bytes"}), 3, "line 1: not a JSON object");
  write_text(tiny / "r.jsonl", "{\"text\": \"\"}\n{\"text\": \"\"}\n");
  EXPECT_FAULT(prepare("r.jsonl"), 3, "split train has no document left (empty ones are dropped)");
  for (const auto& [file, bytes] : {std::pair<std::string, std::string>{"a.txt.gz", gzipped("a text, and more of it")},
                                    {"a.txt.zst", zstandard("a text, and more of it")}}) {
    write_text(tiny / file, bytes.substr(0, bytes.size() - 3));
    EXPECT_FAULT(prepare(file), 3, file + ": ends early");
    write_text(tiny / file, "a text, and more of it");
    EXPECT_FAULT(prepare(file), 3, file + ": damaged");
  }
  write_text(tiny / "a.txt", "a text");
  EXPECT_FAULT(prepare("a.txt", {"--split", "valid=1.5"}), 2, "a fraction is more than 0 and less than 1");
  EXPECT_FAULT(prepare("a.txt", {"--split", "valid=0.5"}), 3, "leaves no document of 1 for train");
  EXPECT_FAULT(prepare("a.txt", {"--split", "valid=" + (tiny / "a.txt").string()}), 3, "given twice");
  write_text(tiny / "b.txt", "a text");
  EXPECT_FAULT(prepare("a.txt", {"--split", "valid=" + (tiny / "b.txt").string()}), 3, "b is the same text as a");
  for (const auto& entry : fs::directory_iterator(tiny / "")) {
    EXPECT_EQ(entry.path().filename().string().find("new.h5"), std::string::npos) << entry.path();
  }
}

TEST(DataFaults, TokenizersThatCannotBeUsed) {
  const TinyRun tiny;
  write_text(tiny / "a.txt", "a text");
  write_text(tiny / "spm.model", "no model");
  const auto prepare = [&](const std::string& tokenizer) {
    return run_quire({"prepare", "--input", (tiny / "a.txt").string(), "--tokenizer", tokenizer, "--output",
                      (tiny / "new.h5").string()});
  };
  EXPECT_FAULT(prepare("bite"), 2, "unknown tokenizer \"bite\"; there is: byte, ids, hf, bpe, tiktoken, spm");
  EXPECT_FAULT(prepare("spm:" + (tiny / "absent").string()), 3, "absent: no such file");
  EXPECT_FAULT(prepare("spm:" + (tiny / "spm.model").string()), 3, "spm.model: not a SentencePiece model");

  HandmadeCorpus corpus;
  corpus.tokenizer = "bite\n";
  corpus.write(tiny.corpus());
  EXPECT_FAULT(tiny.train("run"), 3, "corpus.h5: unknown tokenizer \"bite\"");
  corpus.tokenizer = "spm\n0a1";
  corpus.write(tiny.corpus());
  EXPECT_FAULT(tiny.train("run"), 3, "corpus.h5: the stored SentencePiece model is damaged");
}

TEST(DataFaults, PrepareNeverReplacesACorpusByItself) {
  const TinyRun tiny;
  const std::string before = read_text(tiny.corpus());
  write_text(tiny / "a.txt", "text");
  const std::vector<std::string> arguments{"prepare", "--input", (tiny / "a.txt").string(), "--output",
                                           tiny.corpus().string()};
  EXPECT_FAULT(run_quire(arguments), 2, "exists already; use --force");
  write_text(tiny / "a.txt", "\xFF");
  std::vector<std::string> forced = arguments;
  forced.emplace_back("--force");
  EXPECT_FAULT(run_quire(forced), 3, "invalid UTF-8");
  EXPECT_EQ(read_text(tiny.corpus()), before);
}

TEST(DataFaults, AnotherCorpusOnResume) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string metrics = read_text(tiny / "run/metrics.jsonl");
  write_corpus(tiny.corpus(), {{"train", {"something else"}}}, {.force = true});
  EXPECT_FAULT(tiny.resume("run", {"schedule.steps=4"}), 3, "resume with the corpus it began with");
  EXPECT_EQ(read_text(tiny / "run/metrics.jsonl"), metrics);
}

}  // namespace
}  // namespace quire::test
