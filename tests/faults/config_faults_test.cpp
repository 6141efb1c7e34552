// Wrong configurations are refused before anything is made, with the place and what to write instead.
#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

struct Fault {
  const char* find;     // in the tiny configuration
  const char* replace;  // what stands there instead
  const char* message;
};

TEST(ConfigFaults, NameFileLineColumnAndWhatWasMeant) {
  const Fault faults[] = {
      {"  width: 16", "  wdith: 16", "run.yaml:4:3: model.wdith: unknown key; did you mean model.width?"},
      {"  width: 16", "  subsequence: 16",
       "run.yaml:4:3: model.subsequence: unknown key; did you mean data.subsequence?"},
      {"  width: 16", "  width: 16\n  width: 16", "run.yaml:5:3"},
      {"  width: 16", "  width: wide", "run.yaml:4:10: model.width: expects an integer, got 'wide'"},
      {"  width: 16", "  width: 020", "octal"},
      {"  width: 16", "  width: 0", "run.yaml:4:10: model.width: must be at least 1"},
      {"  width: 16", "  width: 15", "heads"},
      {"  width: 16", "  width: 16\n  embedding: {tied: yes}",
       "model.embedding.tied: expects true or false, got 'yes'; write true"},
      {"  width: 16", "  width: 16\n  embedding: {tied: on}", "write true"},
      {"kind: hidden", "kind: hiden", "hidden"},
      {"carry: {kind: hidden, length: 12}", "window: 8, carry: {kind: hidden, length: 12}",
       "more is carried than the window"},
      {"carry: {kind: hidden, length: 12}", "carry: {length: 12}", "a length has no meaning where nothing is carried"},
      {"carry: {kind: hidden, length: 12}", "carry: {kind: hidden}", "what is carried needs a length"},
      {"carry: {kind: hidden, length: 12}", "carry: {kind: hidden, length: 12, dtype: fp8}",
       "run.yaml:9:66: model.attention.softmax.carry.dtype: a cache is not stored as int8 or fp8"},
      {"carry: {kind: hidden, length: 12}", "carry: {mask_empty: false}", "needs carry.kind: kv"},
      {"rows: 3}", "rows: 3, accumulate: 4}", "must not be above data.rows"},
      {"rows: 3}", "rows: 3, pack: concat, sampling: columns}", "has no meaning with data.sampling windows or columns"},
      {"rows: 3}", "rows: 3, pack: concat, sampling: windows}", "has no meaning with data.sampling windows or columns"},
      {"rows: 3}", "rows: 3, sampling: window}", "windows"},
      {"rows: 3}", "rows: 600, sampling: columns}", "600 columns cannot be cut out of 595 positions"},
      {"rows: 3}", "rows: 3", "run.yaml:"},
      {"warmup: 2, steps: 20", "warmup: 30, steps: 20", "schedule.steps: 20 steps end before the warm-up of 30 does"},
      {"threads: 1", "threads: 1, precision: bf16", "bf16 is refused on the CPU"},
      {"threads: 1", "threads: 1, device: cuda", "cuda"},
      {"optimizer: {lr: 1e-2}", "optimizer: {lr: .nan}", "must be finite"},
      {"optimizer: {lr: 1e-2}", "optimizer: {betas: [0.9]}", "needs two numbers"},
      {"optimizer: {lr: 1e-2}", "optimizer: {kind: adafactor, betas: [0.8, 0.95]}",
       "run.yaml:10:30: optimizer.betas: means nothing here: only optimizer.kind adamw and muon have it; leave "
       "it out"},
      {"optimizer: {lr: 1e-2}", "optimizer: {groups: [{match: [\"embeding.*\"], lr_scale: 0}]}",
       "run.yaml:10:31: optimizer.groups.0.match.0: 'embeding.*' matches no parameter; names look like"},
      {"kind: cosine", "kind: wsd", "schedule.decay: wsd needs the length of its decay"},
      {"threads: 1", "threads: 1, max_wall_time: 3 hours", "expects a duration such as 3h30m"},
      {"threads: 1", "threads: 1, on_nonfinite: {max_skips: 0}", "run.on_nonfinite.max_skips: must be at least 1"},
      {"every: 0, split", "every: 0, set: {model.width: 8}, split", "model.width cannot differ at evaluation"},
      {"every: 0, split", "every: 0, set: {data.corpus: b.h5}, split", "data.corpus cannot differ at evaluation"},
      {"every: 0, split", "every: 0, set: {model.attention.softmax.carry.lenth: 8}, split",
       "model.attention.softmax.carry.length"},
  };
  const TinyRun tiny;
  for (const Fault& fault : faults) {
    std::string text = kTinyConfig;
    const size_t at = text.find(fault.find);
    ASSERT_NE(at, std::string::npos) << fault.find;
    write_text(tiny.config(), text.replace(at, std::string(fault.find).size(), fault.replace));
    EXPECT_FAULT(tiny.train("run"), 2, fault.message);
  }
  EXPECT_FALSE(std::filesystem::exists(tiny / "run"));
}

TEST(ConfigFaults, IntegersOfWhichNoSizeCanBeMade) {
  const Fault faults[] = {
      {"rows: 2}", "rows: 9223372036854775807}", "evaluate.rows: must be at least 1 and at most 1048576"},
      {"heads: 2", "heads: 2\n  head_size: 9223372036854775807",
       "model.head_size: must be at least 1 and at most 1048576"},
      {"seed: 3", "seed: 9223372036854775807", "run.seed: must be at most 9007199254740992"}};
  const TinyRun tiny;
  for (const Fault& fault : faults) {
    std::string text = kTinyConfig;
    write_text(tiny.config(), text.replace(text.find(fault.find), std::string(fault.find).size(), fault.replace));
    EXPECT_FAULT(run_quire({"config", tiny.config().string(), "--check"}), 2, fault.message);
    EXPECT_FAULT(run_quire({"plan", tiny.config().string()}), 2, fault.message);
    EXPECT_FAULT(tiny.train("run"), 2, fault.message);
  }
}

// A line repeats at most 200 characters of what it is about.
TEST(ConfigFaults, LinesRepeatLittleOfWhatIsLong) {
  const TinyRun tiny;
  const std::string path = tiny.config().string();
  const std::string text(100'000, 'x');
  const std::string digits(100'000, '1');
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{text},
                                             {"train", text},
                                             {"train", path, "--" + text},
                                             {"train", path, text},
                                             {"train", path, text + "=1"},
                                             {"train", path, "model." + text + "=1"},
                                             {"train", path, "run.precision=" + text},
                                             {"train", path, "run.threads=" + digits},
                                             {"train", path, "optimizer.lr=" + digits},
                                             {"config", "--explain", text},
                                             {"prepare", "--input", path, "--split", text, "--output", "c.h5"},
                                             {"prepare", "--input", path, "--tokenizer", text, "--output", "c.h5"},
                                             {"inspect", text}}) {
    const ProgramResult result = run_quire(arguments);
    EXPECT_TRUE(result.code == 2 || result.code == 7) << result.code << result.err.substr(0, 500);
    ASSERT_EQ(result.errors().size(), 1U) << result.err.substr(0, 500);
    EXPECT_LT(result.errors().front().size(), 700U) << result.err.substr(0, 2000);
  }
}

TEST(ConfigFaults, ConcatNeedsAnEmptyCacheToBeMasked) {
  const TinyRun tiny;
  const std::vector<std::string> overrides{"data.pack=concat", "model.attention.softmax.carry.kind=kv",
                                           "model.attention.softmax.carry.mask_empty=false"};
  EXPECT_FAULT(tiny.train("run", overrides), 2, "concat cannot be combined with mask_empty: false");
}

TEST(ConfigFaults, Overrides) {
  const TinyRun tiny;
  const std::pair<const char*, const char*> faults[] = {
      {"model.width", "not of the form key.path=value"},
      {"model.wdth=3", "did you mean model.width?"},
      {"model.width=abc", "expects an integer, got 'abc'"},
      {"model.width=", "model.width"},
      {"=3", "="},
      {"model.memory.0.carry.length=3", "model.memory"},
  };
  for (const auto& [text, message] : faults) EXPECT_FAULT(tiny.train("run", {text}), 2, message);
  EXPECT_FALSE(std::filesystem::exists(tiny / "run"));
}

TEST(ConfigFaults, AMissingFile) {
  const TinyRun tiny;
  for (const char* verb : {"train", "bench", "config"}) {
    EXPECT_FAULT(run_quire({verb, (tiny / "absent.yaml").string()}), 2, "absent.yaml: No such file or directory");
    EXPECT_FAULT(run_quire({verb, (tiny / "").string()}), 2, "is a folder");
  }
}

TEST(ConfigFaults, ARunNameThatIsNoFolderName) {
  const TinyRun tiny;
  EXPECT_FAULT(run_quire({"train", tiny.config().string(), "run.name=a/b"}), 2, "is not a folder name");
}

}  // namespace
}  // namespace quire::test
