// Tests what people type on their first day, and the line that tells them what to type instead.
#include <regex>
#include <sstream>

#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

ProgramResult run_in(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  ProgramOptions options;
  options.folder = folder;
  return run_quire(std::move(arguments), options);
}

struct Slip {
  std::vector<std::string> arguments;
  int code;
  std::string message;
};

void expect_slips(const std::vector<Slip>& slips, const std::filesystem::path& folder) {
  for (const Slip& slip : slips) {
    EXPECT_FAULT(run_in(folder, slip.arguments), slip.code, slip.message);
  }
}

TEST(Messages, AMisspeltVerbIsNamedWithTheNearestOne) {
  expect_slips({{{"trian", "run.yaml"}, 2, "'trian' is no verb of quire; did you mean train? see quire --help"},
                {{"evaluate", "x"}, 2, "'evaluate' is no verb of quire; did you mean quire eval? see quire --help"},
                {{"run.yaml"}, 2, "'run.yaml' is no verb of quire; did you mean quire train run.yaml?"},
                {{"tokenizer", "trian"}, 2, "'trian' is no verb of quire tokenizer; did you mean train?"},
                {{"help", "trian"}, 2, "'trian' is no verb of quire; did you mean train?"}},
               "");
  // Help is no error.
  const std::string help = run_quire({"--help"}).out;
  for (const std::vector<std::string>& asked : {std::vector<std::string>{}, {"help"}}) {
    const ProgramResult result = run_quire(asked);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, help);
  }
  EXPECT_EQ(run_quire({"help", "tokenizer", "train"}).out, run_quire({"tokenizer", "train", "--help"}).out);
  EXPECT_EQ(run_quire({"tokenizer"}).out, run_quire({"tokenizer", "--help"}).out);
}

TEST(Messages, HelpFitsTheTerminal) {
  for (const std::vector<std::string>& verb : {std::vector<std::string>{},
                                               {"prepare"},
                                               {"tokenizer", "train"},
                                               {"train"},
                                               {"eval"},
                                               {"generate"},
                                               {"needle"},
                                               {"bench"},
                                               {"plan"},
                                               {"config"},
                                               {"inspect"},
                                               {"import"},
                                               {"export"}}) {
    std::vector<std::string> arguments = verb;
    arguments.emplace_back("--help");
    for (const int width : {60, 80}) {
      ProgramOptions options;
      options.environment = {{"COLUMNS", std::to_string(width)}};
      const ProgramResult help = run_quire(arguments, options);
      std::istringstream lines(help.out);
      for (std::string line; std::getline(lines, line);) {
        // Longer only where a name has no space to break at.
        EXPECT_TRUE(static_cast<int>(line.size()) <= width || line.find(' ', 30) == std::string::npos) << line;
      }
    }
  }
  // A choice is not explained by its own name.
  const std::string list = run_quire({"config", "--list"}).out;
  EXPECT_FALSE(std::regex_search(list, std::regex(R"(\n +(\w+): \1:)"))) << "a help text repeats the name";
}

TEST(Messages, AMisspeltOptionIsNamedWithTheNearestOne) {
  expect_slips(
      {{{"prepare", "--inputs", "books", "--output", "c.h5"},
        2,
        "there is no option --inputs; did you mean --input? see quire prepare --help"},
       {{"generate", "x", "--lenght=3"}, 2, "there is no option --lenght; did you mean --length? see"},
       {{"train", "run.yaml", "--steps", "3"}, 2, "there is no option --steps; did you mean schedule.steps=3? see"},
       {{"train", "--seed", "3"}, 2, "there is no option --seed; did you mean run.seed=3?"},
       {{"train", "run.yaml", "--batch-size=8"}, 2, "there is no option --batch-size; did you mean data.rows=VALUE?"},
       {{"train", "--config", "run.yaml"}, 2, "there is no option --config; CONFIG is given without it"},
       {{"generate", "x", "--max-new-tokens", "3"}, 2, "did you mean --length? see quire generate --help"},
       {{"eval", "x", "--window", "3"}, 2, "did you mean model.attention.softmax.window=3?"},
       {{"eval", "--checkpoint", "x"}, 2, "there is no option --checkpoint; CHECKPOINT is given without it"},
       {{"prepare", "--input", "x", "--text_key", "t"}, 2, "did you mean --text-key?"},
       {{"prepare", "--input", "x", "--ouput", "y"}, 2, "there is no option --ouput; did you mean --output? see"},
       {{"prepare", "books", "--output", "c.h5"},
        2,
        "'books' was not expected; did you mean --input books? see quire prepare --help"},
       {{"tokenizer", "train", "--input", "x", "--output", "y", "--vocab-size", "8k"},
        2,
        "write 8192; see quire tokenizer train --help"},
       {{"config", "--print", "run.yaml"}, 2, "--print run.yaml: expects full or minimal; put the file before"},
       {{"generate", "x", "--temperature", "-1"}, 2, "--temperature: must be at least 0 and at most 100, got -1"}},
      "");
}

TEST(Messages, OutputInAFolderThatIsNotThere) {
  const TemporaryDirectory folder;
  write_text(folder / "a.txt", "a text\n");
  expect_slips({{{"prepare", "--input", "a.txt", "--output", "new/c.h5"}, 7, "--output new/c.h5: there is no folder"},
                {{"tokenizer", "train", "--input", "a.txt", "--vocab-size", "270", "--output", "new/spm.model"},
                 7,
                 "--output new/spm.model: there is no folder"}},
               folder / "");
}

TEST(Messages, RunsThatCannotGoOnOrBeRead) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("runs/first", {"schedule.steps=6", "checkpoint.every=5"}).code, 0);
  EXPECT_FAULT(tiny.resume("runs/first", {"schedule.steps=4"}), 2,
               "schedule.steps: 4, but the checkpoint is that of step 6; give a larger number");
  EXPECT_EQ(run_quire({"inspect", (tiny / "runs/first").string(), "--json"}).out.find("\"steps\":4"),
            std::string::npos);
  expect_slips({{{"inspect", "runs"}, 2, "runs: is a folder of runs; give one of them: runs/first"},
                {{"eval", "runs/first", "model.memory.0.carry.length=8"}, 2, "model.memory: the list has 0 entries"},
                {{"config", "run.yaml", "model.memory.0.carry.length=8"},
                 2,
                 "model.memory: there is no list to take entry 0 of; give the whole list"}},
               tiny / "");
  for (const int64_t step : {5, 6}) write_text(tiny.checkpoint("runs/first", step) / "manifest.json", "{");
  const ProgramResult damaged = run_in(tiny / "", {"eval", "runs/first"});
  EXPECT_EQ(damaged.code, 4);
  EXPECT_NE(damaged.err.find("the run holds no whole checkpoint: all of them are damaged"), std::string::npos)
      << damaged.err;
  EXPECT_NE(run_in(tiny / "", {"inspect", "runs/first"}).out.find("all its checkpoints are damaged"),
            std::string::npos);
  std::filesystem::remove_all(tiny / "runs/first/checkpoints");
  std::filesystem::create_directory(tiny / "runs/first/checkpoints");
  EXPECT_FAULT(run_in(tiny / "", {"eval", "runs/first"}), 4,
               "the run holds no checkpoint yet, or they were moved away");
}

TEST(Messages, FilesThatAreSomethingElse) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("runs/first", {"schedule.steps=1", "schedule.warmup=0"}).code, 0);
  std::filesystem::create_directory(tiny / "books");
  write_text(tiny / "books/a.txt", "a text\n");
  const auto path = [&](const char* name) { return (tiny / name).string(); };
  const std::string train = "quire prepare --input ";
  expect_slips(
      {{{"train", "run.yaml", "data.corpus=books"},
        3,
        "books: is a folder, not a corpus; make a corpus of it: " + train},
       {{"train", "run.yaml", "data.corpus=books/a.txt"}, 3, "books/a.txt: is not a corpus; quire prepare makes one"},
       {{"train", "run.yaml", "data.corpus=run.yaml"}, 3, "run.yaml: is not a corpus; quire prepare makes one"},
       {{"train", "corpus.h5"}, 2, "corpus.h5: is an HDF5 file such as a corpus, not a configuration; give the YAML"},
       {{"plan", "corpus.h5"}, 2, "corpus.h5: is an HDF5 file"},
       {{"eval", "runs"}, 2, "runs: is a folder of runs; give one of them: runs/first"},
       {{"train", "runs"}, 2, "runs: is a folder of runs; give one of them: runs/first"},
       {{"train", "--resume", "runs"}, 2, "runs: is a folder of runs; give one of them: runs/first"},
       {{"plan", "runs/"}, 2, "runs/: is a folder of runs; give one of them: runs/first"},
       {{"generate", "runs"}, 2, "runs: is a folder of runs; give one of them: runs/first"},
       {{"train", "runs/first"}, 2, "runs/first: is a run; its configuration is runs/first/config.yaml"},
       {{"eval", "run.yaml"},
        4,
        "run.yaml: is a configuration, not the folder of a run or a checkpoint; give the folder"},
       {{"generate", "corpus.h5"}, 4, "corpus.h5: is a file, not the folder of a run or a checkpoint"},
       {{"eval", path("books")}, 4, "holds no whole checkpoint; give a run or a checkpoint"}},
      tiny / "");
  EXPECT_FALSE(std::filesystem::exists(tiny / "runs/tiny"));
}

TEST(Messages, ValuesThatMeanAnother) {
  const TinyRun tiny;
  const auto train = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"train", "run.yaml"});
    return overrides;
  };
  expect_slips(
      {{train({"run.device=gpu"}), 2, "run.device: expects one of auto, cpu, cuda, got 'gpu'; did you mean cuda?"},
       {train({"run.device=cuad"}), 2, "did you mean cuda?"},
       {train({"optimizer.learning_rate=1e-3"}), 2, "optimizer.learning_rate: unknown key; did you mean optimizer.lr?"},
       {train({"batch_size=8"}), 2, "batch_size: unknown key; did you mean data.rows?"},
       {train({"model.n_layer=8"}), 2, "model.n_layer: unknown key; did you mean model.layers?"},
       {train({"learning_rate=1e-3"}), 2, "learning_rate: unknown key; did you mean optimizer.lr?"},
       {{"config", "--explain", "learning_rate"}, 2, "learning_rate: no such key; did you mean optimizer.lr?"},
       {train({"schedule.steps=1"}), 2,
        "schedule.steps: 1 steps end before the warm-up of 2 does; schedule.warmup=0 would do, or schedule.steps=2"},
       {train({"schedule.warmup=200", "schedule.steps=10"}), 2, "schedule.warmup=1 would do, or schedule.steps=200"},
       {train({"schedule.kind=wsd", "schedule.decay=40", "schedule.steps=10"}), 2,
        "schedule.warmup=1 schedule.decay=2 would do, or schedule.steps=42 and more"},
       {{"config", "run.yaml", "--check", "run.name=a/b"}, 2, "run.name: 'a/b' is not a folder name"},
       {{"config", "run.yaml", "--check", "run.name=\"\""}, 2, "run.name: '' is not a folder name"},
       {{"generate", "x", "--length", "1e3"}, 2, "--length: expects a whole number, got '1e3'; write 1000"},
       {{"generate", "x", "--length", "4k"}, 2, "--length: expects a whole number, got '4k'; write 4096"},
       {{"generate", "x", "--length", "long"}, 2, "--length: expects a whole number, got 'long'; see"},
       {{"generate", "x", "--length", "-1"}, 2, "--length: must be at least 0 and at most 1099511627776, got -1"},
       {{"bench", "x", "--steps", "1e1"}, 2, "--steps: expects a whole number, got '1e1'; write 10"}},
      tiny / "");
  // The suggested values work.
  EXPECT_EQ(run_quire({"config", tiny.config().string(), "schedule.steps=1", "schedule.warmup=0"}).code, 0);
  EXPECT_EQ(run_quire({"config", tiny.config().string(), "schedule.kind=wsd", "schedule.steps=10", "schedule.warmup=1",
                       "schedule.decay=2"})
                .code,
            0);
}

TEST(Messages, OverridesOfLayersPointToThemselves) {
  const TinyRun tiny;
  const std::pair<const char*, const char*> overrides[] = {
      {"{kind: none}",
       "run.yaml:10:71: model.layer_overrides.0.attention.softmax.carry.kind: a length has no meaning "
       "where nothing is carried; set carry.kind to hidden or kv, or write length: none (layer 1)"},
      {"{length: 40}, window: 16",
       "run.yaml:10:73: model.layer_overrides.0.attention.softmax.carry.length: more is carried than the window"},
  };
  for (const auto& [cache, message] : overrides) {
    std::string text = kTinyConfig;
    const size_t at = text.find("optimizer:");
    text.insert(at, std::string("  layer_overrides: [{layers: [1], attention: {softmax: {carry: ") + cache + "}}}]\n");
    write_text(tiny.config(), text);
    EXPECT_FAULT(run_in(tiny / "", {"config", "run.yaml"}), 2, message);
  }
}

TEST(Messages, Help) {
  std::vector<std::vector<std::string>> commands{{}, {"tokenizer", "train"}};
  for (const char* verb : {"prepare", "tokenizer", "train", "eval", "compare", "report", "generate", "needle", "bench",
                           "plan", "config", "inspect", "import", "export"}) {
    commands.push_back({verb});
  }
  for (std::vector<std::string>& command : commands) {
    command.emplace_back("--help");
    const ProgramResult help = run_quire(command);
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("Exit codes: 0 done, "), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("75 stopped and resumable"), std::string::npos) << help.out;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST(Messages, AMissingGpuIsOneShortLineOfANewRun) {
  const TinyRun tiny;
  const ProgramResult first = tiny.train("run", {"schedule.steps=10", "checkpoint.every=5"});
  ASSERT_EQ(first.code, 0) << first.err;
  const ProgramResult second = tiny.resume("run", {"schedule.steps=12"});
  ASSERT_EQ(second.code, 0) << second.err;
  const std::string word = "no GPU is used: ";
  const size_t at = first.err.find(word);
  if (at == std::string::npos) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(first.err.find(word, at + 1), std::string::npos) << first.err;
  EXPECT_LT(first.err.find('\n', at) - at, 80U) << first.err;
  EXPECT_EQ(second.err.find(word), std::string::npos) << second.err;
}

TEST(Messages, ADriverThatCannotBeUsedIsWarnedOfEveryTime) {
  const TinyRun tiny;
  write_text(tiny / "libcuda.so.1", "no library");
  ProgramOptions options;
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  options.environment = {{"LD_LIBRARY_PATH", (tiny / "").string() + ":" + (before == nullptr ? "" : before)}};
  const ProgramResult first =
      run_quire(tiny.train_arguments("run", {"schedule.steps=10", "checkpoint.every=5"}), options);
  ASSERT_EQ(first.code, 0) << first.err;
  if (first.err.find("no GPU is used: this program was built without") != std::string::npos) {
    GTEST_SKIP() << "there is no CUDA in this build";
  }
  const ProgramResult second = run_quire(tiny.resume_arguments(tiny / "run", {"schedule.steps=12"}), options);
  for (const ProgramResult* result : {&first, &second}) {
    EXPECT_NE(result->err.find("quire: warning: no GPU is used: the NVIDIA driver cannot be loaded ("),
              std::string::npos)
        << result->err;
  }
  const ProgramResult unwanted = run_quire(tiny.train_arguments("other", {"run.device=cpu"}), options);
  EXPECT_EQ(unwanted.err.find("no GPU is used"), std::string::npos) << unwanted.err;
}

TEST(Messages, SharesAndListsOfSplits) {
  const TemporaryDirectory folder;
  std::filesystem::create_directory(folder / "books");
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    write_text(folder / "books" / (std::string(name) + ".txt"), std::string(100, *name) + "\n");
  }
  const auto prepare = [&](const char* split) {
    return run_in(folder / "", {"prepare", "--input", "books", "--split", split, "--force", "--output", "c.h5"});
  };
  const ProgramResult fifth = prepare("valid=0.05");
  EXPECT_EQ(fifth.code, 0) << fifth.err;
  EXPECT_NE(fifth.err.find("quire: warning: split valid holds 20 % of the text, and 5 % was asked for: documents are "
                           "not cut, and it has 1 of 5;"),
            std::string::npos)
      << fifth.err;
  EXPECT_EQ(prepare("valid=0.2").err.find("warning"), std::string::npos);

  write_text(folder / "names", "b.txt\nd\n");
  const ProgramResult listed = prepare("valid=@names");
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("valid      2 documents"), std::string::npos) << listed.out;
  write_text(folder / "names", "b.txt\nb\n");
  EXPECT_FAULT(prepare("valid=@names"), 3, "\"b.txt\" and \"b\" name the same document");
  write_text(folder / "names", "f.txt\n");
  EXPECT_FAULT(prepare("valid=@names"), 3, "no document is named \"f.txt\"");
}

}  // namespace
}  // namespace quire::test
