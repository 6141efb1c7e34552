// Tests files of the previous version that are rewritten, and its runs that continue.
#include "core/config/config.h"
#include "tests/support/checkpoint_edit.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPreviousText = R"(# mine
model:
  position: rope  # rotary
  attention: {window: 8, cache: {kind: kv}}
run: {graphs: true, name: a}
)";

std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Upgrade, RewritesAFileOnce) {
  const TinyRun tiny;
  const fs::path file = tiny / "old.yaml";
  write_text(file, kPreviousText);
  const auto refusal = [&](const fs::path& of) {
    const ProgramResult refused = run_quire({"config", of.string()});
    EXPECT_EQ(refused.code, 2);
    EXPECT_EQ(refused.errors().size(), 1U) << refused.err;
    return refused.err;
  };
  EXPECT_NE(refusal(file).find("old.yaml:5:7: run.graphs: is a key of the previous version; there is no such key any "
                               "more. `quire config --upgrade FILE` rewrites a file"),
            std::string::npos);
  write_text(tiny / "position.yaml", "model:\n  position: rope\n");
  EXPECT_NE(refusal(tiny / "position.yaml")
                .find("position.yaml:2:13: model.position: is a key of the previous version; it is "
                      "model.position.kind now. `quire config --upgrade FILE` rewrites a file"),
            std::string::npos);
  const std::vector<std::string> before = files_of(tiny / "");
  const ProgramResult upgraded = run_quire({"config", "--upgrade", file.string()});
  ASSERT_EQ(upgraded.code, 0) << upgraded.err;
  for (const char* line : {"line 3: model.position is model.position.kind now",
                           "line 4: model.attention.window is model.attention.softmax.window now",
                           "line 5: run.graphs: true is left out: there is no such key any more"}) {
    EXPECT_NE(upgraded.out.find(line), std::string::npos) << upgraded.out;
  }
  const std::string text = read_text(file);
  EXPECT_EQ(text,
            "# mine\nmodel:\n  position: {kind: rope}  # rotary\n  attention: {softmax: {window: 8, carry: {kind: "
            "kv}}}\nrun: {name: a}\n");
  const ProgramResult again = run_quire({"config", "--upgrade", file.string()});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("has the keys of this version already; nothing was changed"), std::string::npos);
  EXPECT_EQ(read_text(file), text);
  EXPECT_EQ(files_of(tiny / ""), before);
}

TEST(Upgrade, WritesNothingThatItCannotConvert) {
  const TinyRun tiny;
  const fs::path file = tiny / "old.yaml";
  const std::pair<std::string, std::string> refused[] = {
      {"model:\n  position: rope\n  widht: 8\n", "model.widht: unknown key"},
      {"model:\n  position: [\n", "YAML"},
      {"model:\n  position: rope\n  attention: {\n    # why\n    rope: {base: 5}}\n", "has no place"},
  };
  for (const auto& [text, message] : refused) {
    write_text(file, text);
    const ProgramResult result = run_quire({"config", "--upgrade", file.string()});
    EXPECT_EQ(result.code, 2) << text;
    ASSERT_EQ(result.errors().size(), 1U) << result.err;
    EXPECT_NE(result.errors().front().find(message), std::string::npos) << result.err;
    EXPECT_EQ(read_text(file), text);
  }
  EXPECT_EQ(run_quire({"config", "--upgrade", file.string(), "run.seed=2"}).code, 2);
  EXPECT_EQ(run_quire({"config", "--upgrade"}).code, 2);
}

struct PreviousRun {
  std::vector<std::string> settings;
  std::string model;  // as the previous version said them
};

const std::vector<PreviousRun>& previous_runs() {
  static const std::vector<PreviousRun> all{
      {{"evaluate.every=10", "evaluate.set={model.attention.softmax.carry.length: 20, model.position.xl.clamp: 15}"},
       "  position: xl\n  attention: {cache: {kind: hidden, length: 12}, implementation: own}\n"},
      {{"model.position.kind=rope", "model.position.rope={base: 500, dims: 4}",
        "model.attention={softmax: {window: 11, qk_norm: true, carry: {kind: kv, dtype: bf16}}, shifted_share: 0.5}",
        "model.memory=[{kind: knn, layers: [1], top_k: 4, write: evict, carry: {length: 24, dtype: int8, place: "
        "file}}]"},
       "  position: rope\n  attention:\n    window: 11\n    qk_norm: true\n    token_shift: 0.5\n    cache: {kind: kv, "
       "dtype: bf16}\n    rope: {base: 500, dims: 4}\n  memory: [{kind: knn, layers: [1], size: 24, top_k: 4, dtype: "
       "int8, place: file, write: evict}]\n"},
      {{"model.position.kind=rope",
        "model.attention={kind: landmark, landmark: {block: 3, top_k: 2, carry: {length: "
        "6, in_training: true}}}",
        "model.layer_overrides=[{layers: [1], attention: {kind: moba, moba: {block: 4, carry: {length: 9}}}}]"},
       "  position: rope\n  attention: {kind: landmark, landmark: {block: 3, top_k: 2, capacity: 6, retrieve: true}}\n"
       "  layer_overrides: [{layers: [1], attention: {kind: moba, window: none, cache: {kind: none, length: none}, "
       "moba: {block: 4, capacity: 9}}}]\n"},
      {{"model.position.kind=alibi",
        "model.attention={kind: vq, vq: {window: 5, codes: 6, block: 4, cache_gradient: "
        "false}}",
        "model.stack={kind: drt, drt: {chunk: 3, top_k: 2, groups: 1, carry: {length: 7}}}", "model.layers=3"},
       "  layers: 3\n  position: alibi\n  attention: {kind: vq, window: 5, vq: {codes: 6, block: 4, through_cache: "
       "false}}\n  stack: {kind: drt, drt: {chunk: 3, top_k: 2, groups: 1, capacity: 7, carry: true}}\n"},
  };
  return all;
}

// Returns the text that the previous version wrote into the run and its checkpoints, with the keys that do not have
// their defaults.
std::string previous_text(const TinyRun& tiny, const PreviousRun& run) {
  std::string text = kTinyConfig;
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  replace("corpus: corpus.h5", "corpus: \"" + tiny.corpus().string() + "\"");
  const bool layers = run.model.find("  layers: ") == 0;
  if (layers) replace("  layers: 2\n", "");
  const size_t position = text.find("  position:");
  const size_t end = text.find("optimizer:");
  text.replace(position, end - position, run.model);
  const bool evaluated = run.settings.front() == "evaluate.every=10";
  if (evaluated) {
    replace("evaluate: {every: 0, split: valid, rows: 2}",
            "evaluate:\n  every: 10\n  split: valid\n  rows: 2\n  set: {model.attention.cache.length: 20, "
            "model.attention.xl.clamp: 15}");
  }
  return saved_configuration(text);
}

TEST(Upgrade, RunsOfThePreviousVersionGoOn) {
  for (const PreviousRun& run : previous_runs()) {
    SCOPED_TRACE(run.model);
    const TinyRun tiny;
    const ProgramResult trained = tiny.train("whole", run.settings);
    ASSERT_EQ(trained.code, 0) << trained.err;
    fs::copy(tiny / "whole", tiny / "half", fs::copy_options::recursive);
    fs::remove_all(tiny.checkpoint("half", 20));
    const std::string previous = previous_text(tiny, run);
    write_text(tiny / "half/config.yaml", previous);
    write_text(tiny.checkpoint("half", 10) / "config.yaml", previous);
    seal_checkpoint(tiny.checkpoint("half", 10));
    const ProgramResult evaluated = run_quire({"eval", (tiny / "half").string(), "--json"});
    EXPECT_EQ(evaluated.code, 0) << evaluated.err;
    EXPECT_EQ(run_quire({"inspect", (tiny / "half").string()}).code, 0);

    const ProgramResult resumed = tiny.resume("half");
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.err.find("->"), std::string::npos) << "a value changed: " << resumed.err;
    EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / "half"));
    expect_same_checkpoint(tiny.checkpoint("whole", 20), tiny.checkpoint("half", 20));
    // The run has the form of this version now, and that of the run that never stopped.
    EXPECT_EQ(read_text(tiny / "half/config.yaml"), read_text(tiny / "whole/config.yaml"));
    EXPECT_EQ(read_text(tiny.checkpoint("half", 20) / "config.yaml"),
              read_text(tiny.checkpoint("whole", 20) / "config.yaml"));
  }
}

// An edit of the run's file counts as one, in the previous form as well.
TEST(Upgrade, AnEditOfARunOfThePreviousVersionIsSeen) {
  const TinyRun tiny;
  const PreviousRun& run = previous_runs().front();
  ASSERT_EQ(tiny.train("run", run.settings).code, 0);
  fs::remove_all(tiny.checkpoint("run", 20));
  std::string text = previous_text(tiny, run);
  const fs::path checkpoint = tiny.checkpoint("run", 10);
  write_text(checkpoint / "config.yaml", text);
  seal_checkpoint(checkpoint);
  const size_t at = text.find("width: 16");
  ASSERT_NE(at, std::string::npos);
  write_text(tiny / "run/config.yaml", text.replace(at, 9, "width: 32"));
  const ProgramResult refused = tiny.resume("run");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("was edited: model.width is 32 there and 16 in"), std::string::npos) << refused.err;
  // Rewriting the file keeps that, and keeps the seal of one that nobody has edited.
  ASSERT_EQ(run_quire({"config", "--upgrade", (tiny / "run/config.yaml").string()}).code, 0);
  EXPECT_TRUE(was_edited(read_text(tiny / "run/config.yaml")));
  write_text(tiny / "run/config.yaml", previous_text(tiny, run));
  ASSERT_EQ(run_quire({"config", "--upgrade", (tiny / "run/config.yaml").string()}).code, 0);
  EXPECT_FALSE(was_edited(read_text(tiny / "run/config.yaml")));
  EXPECT_EQ(tiny.resume("run").code, 0);
}

}  // namespace
}  // namespace quire::test
