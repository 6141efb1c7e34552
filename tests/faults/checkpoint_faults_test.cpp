// Checkpoints that are damaged, or of another model: evaluation refuses, a run falls back to the one before.
#include "core/files/file_io.h"
#include "tests/faults/expect_fault.h"
#include "trainers/checkpoint/checkpoint_manifest.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

enum class Damage { truncated, flipped, missing, no_manifest, flipped_manifest };

void damage(const fs::path& checkpoint, Damage how) {
  const fs::path file = checkpoint / (how == Damage::flipped_manifest ? "manifest.json" : "model.h5");
  std::string bytes = read_text(file);
  switch (how) {
    case Damage::truncated:
      return write_text(file, bytes.substr(0, bytes.size() / 2));
    case Damage::flipped:
    case Damage::flipped_manifest:
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
      return write_text(file, bytes);
    case Damage::missing:
      fs::remove(file);
      return;
    case Damage::no_manifest:
      fs::remove(checkpoint / "manifest.json");
  }
}

TEST(CheckpointFaults, EvalRefusesAndResumeFallsBack) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole").code, 0);
  for (const Damage how :
       {Damage::truncated, Damage::flipped, Damage::missing, Damage::no_manifest, Damage::flipped_manifest}) {
    fs::remove_all(tiny / "run");
    fs::copy(tiny / "whole", tiny / "run", fs::copy_options::recursive);
    damage(tiny.checkpoint("run", 20), how);
    EXPECT_FAULT(run_quire({"eval", tiny.checkpoint("run", 20).string()}), 4, "use another checkpoint of the run");
    EXPECT_FAULT(run_quire({"generate", tiny.checkpoint("run", 20).string()}), 4, "step-00000020");
    const ProgramResult resumed = tiny.resume("run");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("quire: warning: checkpoint skipped"), std::string::npos) << resumed.err;
    EXPECT_NE(resumed.err.find("going on from step 10"), std::string::npos) << resumed.err;
    EXPECT_EQ(comparable_metrics(tiny / "run"), comparable_metrics(tiny / "whole"));
    expect_same_checkpoint(tiny.checkpoint("run", 20), tiny.checkpoint("whole", 20));
  }
}

// Its configuration need not be one that this program can read.
TEST(CheckpointFaults, AnotherVersionOfTheFormat) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=3"}).code, 0);
  const fs::path checkpoint = tiny.checkpoint("run", 3);
  const CheckpointReader reader = CheckpointReader::open(checkpoint);
  std::vector<CheckpointPart> parts;
  for (const std::string& name : reader.parts()) parts.push_back(reader.read_part(name));
  nlohmann::json meta = reader.meta();
  EXPECT_EQ(meta.at("version"), 3);
  meta["version"] = 2;
  write_checkpoint(tiny / "run/checkpoints", 3, parts, meta,
                   {{"config.yaml", "of_another_time: 1\n"}, {"tokenizer.txt", reader.read_text("tokenizer.txt")}});
  const std::string line =
      checkpoint.string() + ": has version 2 of the checkpoint format, this program reads 3; use a matching quire\n";
  const std::string path = checkpoint.string();
  EXPECT_FAULT(tiny.resume("run"), 4, line);
  EXPECT_FAULT(run_quire({"eval", path}), 4, line);
  EXPECT_FAULT(run_quire({"generate", path}), 4, line);
  EXPECT_FAULT(run_quire({"needle", path, "--lengths", "300"}), 4, line);
  EXPECT_FAULT(run_quire({"inspect", path}), 4, line);
  EXPECT_FAULT(tiny.train("tuned", {"init.from=" + path}), 4, line);
}

TEST(CheckpointFaults, NothingWholeIsLeft) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  const std::string metrics = read_text(tiny / "run/metrics.jsonl");
  damage(tiny.checkpoint("run", 10), Damage::flipped);
  damage(tiny.checkpoint("run", 20), Damage::truncated);
  const ProgramResult resumed = tiny.resume("run");
  EXPECT_EQ(resumed.code, 4) << resumed.err;
  EXPECT_EQ(resumed.errors().size(), 1U) << resumed.err;
  EXPECT_EQ(read_text(tiny / "run/metrics.jsonl"), metrics);
}

// The checkpoint could be that of a later version of quire: it is whole, but has a tokenizer that this program does not
// know.
TEST(CheckpointFaults, AnUnknownTokenizer) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const fs::path checkpoint = tiny.checkpoint("run", 2);
  write_text(checkpoint / "tokenizer.txt", "bite\n");
  Manifest manifest = Manifest::read(checkpoint);
  for (ManifestFile& file : manifest.files) {
    if (file.name == "tokenizer.txt") file = {file.name, 5, checksum_of_file(checkpoint / file.name)};
  }
  write_text(checkpoint / "manifest.json", manifest.to_json());
  EXPECT_FAULT(run_quire({"eval", checkpoint.string()}), 4, "tokenizer.txt: unknown tokenizer \"bite\"");
  EXPECT_FAULT(run_quire({"generate", checkpoint.string()}), 4, "tokenizer.txt: unknown tokenizer \"bite\"");
}

TEST(CheckpointFaults, AnotherModel) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("narrow", {"schedule.steps=2"}).code, 0);
  ASSERT_EQ(tiny.train("wide", {"schedule.steps=2", "model.width=24"}).code, 0);
  ASSERT_EQ(tiny.train("deep", {"schedule.steps=2", "model.layers=3"}).code, 0);
  EXPECT_FAULT(run_quire({"eval", (tiny / "narrow").string(), "model.width=24"}), 2, "model.width: cannot differ");
  EXPECT_FAULT(run_quire({"generate", (tiny / "narrow").string(), "model.heads=1"}), 2, "model.heads: cannot differ");
  // Nor what would have no effect.
  EXPECT_FAULT(run_quire({"eval", (tiny / "narrow").string(), "evaluate.documents=1"}), 2,
               "evaluate.documents: cannot");
  EXPECT_FAULT(run_quire({"generate", (tiny / "narrow").string(), "evaluate.rows=1"}), 2, "evaluate.rows: cannot");

  // Whole checkpoints whose configuration and weights do not belong together.
  const CheckpointReader narrow = CheckpointReader::open(tiny.checkpoint("narrow", 2));
  for (const char* name : {"wide", "deep"}) {
    const CheckpointReader other = CheckpointReader::open(tiny.checkpoint(name, 2));
    std::vector<CheckpointPart> parts;
    for (const std::string& part : other.parts()) parts.push_back(other.read_part(part));
    write_checkpoint(tiny / "mixed" / "checkpoints", 2, parts, other.meta(),
                     {{"config.yaml", narrow.read_text("config.yaml")}, {"tokenizer.txt", "byte\n"}});
    write_text(tiny / "mixed" / "config.yaml", narrow.read_text("config.yaml"));
    EXPECT_FAULT(run_quire({"eval", (tiny / "mixed").string()}), 4, "model");
    EXPECT_FAULT(tiny.resume("mixed", {"schedule.steps=4"}), 4, "model");
    EXPECT_FALSE(fs::exists(tiny / "mixed" / "metrics.jsonl"));
  }
}

TEST(CheckpointFaults, FoldersThatAreNoRun) {
  const TinyRun tiny;
  fs::create_directory(tiny / "folder");
  for (const char* verb : {"eval", "generate"}) {
    EXPECT_FAULT(run_quire({verb, (tiny / "absent").string()}), 4, "no such folder; give a run or a checkpoint");
    EXPECT_FAULT(run_quire({verb, (tiny / "folder").string()}), 4, "holds no whole checkpoint");
    EXPECT_FAULT(run_quire({verb, tiny.config().string()}), 4, "run.yaml");
  }
  EXPECT_FAULT(tiny.resume("folder"), 4, "holds no whole checkpoint");
}

TEST(CheckpointFaults, ARunIsNeverStartedOverAnother) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  std::vector<std::pair<fs::path, std::string>> before;
  for (const auto& entry : fs::recursive_directory_iterator(tiny / "run")) {
    if (entry.is_regular_file()) before.emplace_back(entry.path(), read_text(entry.path()));
  }
  EXPECT_FAULT(tiny.train("run", {"run.seed=9"}), 2, "already holds a run; continue it with --resume");
  for (const auto& [path, text] : before) EXPECT_EQ(read_text(path), text) << path;
}

}  // namespace
}  // namespace quire::test
