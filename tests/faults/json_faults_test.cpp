// JSON that is nested deep, or has other types than quire writes, under checksums that fit.
#include "core/check.h"
#include "tests/faults/expect_fault.h"
#include "tests/support/checkpoint_edit.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

const std::string kDeep(100'000, '[');

// A run with checkpoints of steps 2 and 4.
class JsonFaults : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(tiny_.train("run", {"schedule.steps=4", "checkpoint.every=2"}).code, 0); }
  fs::path newest() const { return tiny_.checkpoint("run", 4); }
  // The newest checkpoint is refused where it is named, and its run goes on from the one before.
  void expect_older(const std::string& part) const {
    const std::string path = newest().string();
    EXPECT_FAULT(run_quire({"inspect", path}), 4, part);
    EXPECT_FAULT(run_quire({"eval", path}), 4, part);
    const ProgramResult resumed = tiny_.resume("run");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("quire: warning: checkpoint skipped: " + path), std::string::npos) << resumed.err;
    EXPECT_NE(resumed.err.find("going on from step 2"), std::string::npos) << resumed.err;
  }
  const TinyRun tiny_;
};

TEST_F(JsonFaults, ADeepManifestOfACheckpoint) {
  write_text(newest() / "manifest.json", kDeep);
  expect_older("manifest.json: is not the manifest of a checkpoint");
}

TEST_F(JsonFaults, TheManifestOfAnotherStep) {
  Manifest manifest = Manifest::read(newest());
  manifest.step = 2;
  write_text(newest() / "manifest.json", manifest.to_json());
  expect_older("manifest.json: is that of step 2");
}

TEST_F(JsonFaults, TheMetaOfAnotherStep) {
  fs::copy_file(tiny_.checkpoint("run", 2) / "meta.json", newest() / "meta.json", fs::copy_options::overwrite_existing);
  seal_checkpoint(newest());
  expect_older("meta.json: is that of step 2, the checkpoint is of step 4");
}

TEST_F(JsonFaults, ADeepMeta) {
  write_text(newest() / "meta.json", kDeep);
  seal_checkpoint(newest());
  expect_older("meta.json: is not an object with a version");
}

TEST_F(JsonFaults, ADeepDescriptionOfRows) {
  CheckpointPart part = CheckpointReader::open(newest()).read_part("state-00000000-00000003");
  part.texts.at(0).second = kDeep;
  CheckpointFolder(newest()).write(part);
  seal_checkpoint(newest());
  EXPECT_FAULT(run_quire({"inspect", newest().string()}), 4, "does not say what its rows are");
  EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=6"}), 4, "does not say what its rows are");
}

TEST_F(JsonFaults, DeepMetrics) {
  write_text(tiny_ / "run/metrics.jsonl", kDeep + "\n");
  EXPECT_FAULT(run_quire({"inspect", (tiny_ / "run").string()}), 3, "metrics.jsonl:1: not a JSON object");
  EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=6"}), 3, "metrics.jsonl:1: not a JSON object");
}

TEST_F(JsonFaults, ADeepManifestOfACorpus) {
  write_text(tiny_ / "corpus.h5.manifest", kDeep);
  EXPECT_FAULT(run_quire({"inspect", tiny_.corpus().string()}), 3, "corpus.h5.manifest: damaged manifest");
  EXPECT_FAULT(tiny_.train("other"), 3, "corpus.h5.manifest: damaged manifest");
  write_text(tiny_ / "a.txt", "a text");
  EXPECT_FAULT(
      run_quire({"prepare", "--input", (tiny_ / "a.txt").string(), "--output", tiny_.corpus().string(), "--force"}), 2,
      "exists already and is not a corpus with a manifest beside it");
}

TEST_F(JsonFaults, ADeepStampAndADeepRecord) {
  write_text(tiny_ / "corpus.h5.verified", kDeep);
  EXPECT_EQ(run_quire({"inspect", tiny_.corpus().string()}).code, 0);
  write_text(tiny_ / "r.jsonl", "{\"text\": \"good\"}\n{\"text\": \"x\", \"more\": " + kDeep + "}\n");
  EXPECT_FAULT(run_quire({"prepare", "--input", (tiny_ / "r.jsonl").string(), "--output", (tiny_ / "r.h5").string()}),
               3, "r.jsonl: line 2: not a JSON object: it is nested more than 256 deep");
}

// Every value of meta.json with every other type, and without it. Whatever is accepted is a value that the run can go
// on with.
TEST_F(JsonFaults, EveryValueOfMetaHasItsType) {
  const std::string before = read_text(newest() / "meta.json");
  const nlohmann::json meta = nlohmann::json::parse(before);
  std::vector<std::pair<std::string, nlohmann::json>> mutants;
  for (const auto& [key, value] : meta.items()) {
    for (const char* other : {"null", "true", "1.5", "-1", "\"text\"", "[]", "[1]", "{}", "{\"a\": 1}",
                              "9007199254740993", "18446744073709551615", "-9223372036854775808", "1e300"}) {
      mutants.emplace_back(key, meta).second[key] = nlohmann::json::parse(other);
    }
    mutants.emplace_back(key, meta).second.erase(key);
  }
  for (const char* cursor : {"{\"next_place\":0,\"rows\":[[0,1]]}", "{\"next_place\":-5,\"rows\":[]}",
                             "{\"next_place\":1e300,\"rows\":[[true,0],[0,0],[0,0]]}",
                             "{\"next_place\":9223372036854775807,\"rows\":[[9223372036854775806,1],[-1,0],[-1,0]]}"}) {
    mutants.emplace_back("cursor", meta).second["cursor"] = cursor;
  }
  int accepted = 0;
  for (const auto& [key, mutant] : mutants) {
    write_text(newest() / "meta.json", mutant.dump());
    seal_checkpoint(newest());
    try {
      CheckpointReader::open(newest());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::checkpoint) << mutant.dump();
      EXPECT_NE(std::string(error.what()).find("meta.json: "), std::string::npos) << error.what();
      continue;
    }
    ++accepted;
    const std::string what = key + ": " + (mutant.contains(key) ? mutant.at(key).dump() : "absent");
    // The checksum of the corpus is no damage of the checkpoint.
    for (const ProgramResult& result :
         {run_quire({"inspect", newest().string()}), tiny_.resume("run", {"schedule.steps=4"})}) {
      EXPECT_TRUE(result.code == 0 || result.code == 4 || (key == "corpus" && result.code == 3))
          << what << " " << result.code << " " << result.signal << result.err;
    }
  }
  EXPECT_GT(accepted, 5);
  EXPECT_LT(accepted, 30);
}

}  // namespace
}  // namespace quire::test
