// Nothing is destroyed that quire did not make, and nothing of a run that could not be made again.
#include <sys/stat.h>

#include "core/files/file_io.h"
#include "tests/faults/expect_fault.h"
#include "tests/support/handmade_corpus.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Moves the checkpoints of a run to an archive.
void archive(const TinyRun& tiny) {
  fs::rename(tiny / "run/checkpoints", tiny / "archive");
  fs::create_directory(tiny / "run/checkpoints");
}

TEST(Keeping, ARunWhoseCheckpointsWereMovedDoesNotBeginAgain) {
  const TinyRun tiny;
  // One has checkpoints on the way, the other at its end only.
  for (const char* every : {"checkpoint.every=5", "checkpoint.every=0"}) {
    ASSERT_EQ(tiny.train("run", {every, "log.every=3"}).code, 0);
    archive(tiny);
    const std::string metrics = read_text(tiny / "run/metrics.jsonl");
    const std::string log = read_text(tiny / "run/log.txt");
    EXPECT_FAULT(tiny.resume("run"), 4, "holds no checkpoint, but its metrics reach step 20");
    EXPECT_EQ(read_text(tiny / "run/metrics.jsonl"), metrics);
    EXPECT_EQ(read_text(tiny / "run/log.txt"), log);
    const ProgramResult shown = run_quire({"inspect", (tiny / "run").string()});
    EXPECT_NE(shown.out.find("its checkpoints are gone"), std::string::npos) << shown.out;
    fs::remove_all(tiny / "run/checkpoints");
    fs::rename(tiny / "archive", tiny / "run/checkpoints");
    EXPECT_EQ(tiny.resume("run").code, 0);
    EXPECT_EQ(read_text(tiny / "run/metrics.jsonl"), metrics);
    fs::remove_all(tiny / "run");
  }
}

TEST(Keeping, ACheckpointOfAnotherRunIsNotResumedFrom) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=10"}).code, 0);
  ASSERT_EQ(tiny.train("wide", {"model.width=24"}).code, 0);
  fs::copy(tiny.checkpoint("wide", 20), tiny.checkpoint("run", 20), fs::copy_options::recursive);
  const std::string config = read_text(tiny / "run/config.yaml");
  EXPECT_FAULT(tiny.resume("run"), 4, "step-00000020: is a checkpoint of another run: model.width is 24 there and 16");
  EXPECT_EQ(read_text(tiny / "run/config.yaml"), config);
  // Options that may change on --resume may differ: the run's own checkpoint is from before the change.
  fs::remove_all(tiny.checkpoint("run", 20));
  ASSERT_EQ(tiny.resume("run", {"schedule.steps=12", "checkpoint.keep=1"}).code, 0);
  fs::remove_all(tiny.checkpoint("run", 12));
  fs::copy(tiny.checkpoint("wide", 10), tiny / "unused", fs::copy_options::recursive);
  EXPECT_FAULT(tiny.resume("run"), 4, "holds no checkpoint");
}

TEST(Keeping, CutMetricsAreSaid) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  const std::string metrics = read_text(tiny / "run/metrics.jsonl");
  const ProgramResult whole = tiny.resume("run");
  EXPECT_EQ(whole.err.find("warning"), std::string::npos) << whole.err;
  write_text(tiny / "run/metrics.jsonl", metrics.substr(0, metrics.find("{\"step\":8,")));
  const ProgramResult cut = tiny.resume("run");
  EXPECT_EQ(cut.code, 0) << cut.err;
  EXPECT_NE(cut.err.find("metrics.jsonl: ends at step 7, but step 20 had been logged"), std::string::npos) << cut.err;
}

class PrepareOver : public ::testing::Test {
 protected:
  void SetUp() override { write_text(tiny_ / "a.txt", "a text"); }
  ProgramResult prepare(const fs::path& output, bool force = true) const {
    std::vector<std::string> arguments{"prepare", "--input", (tiny_ / "a.txt").string(), "--output", output.string()};
    if (force) arguments.emplace_back("--force");
    return run_quire(arguments);
  }
  TinyRun tiny_;
};

TEST_F(PrepareOver, FilesThatAreNoCorpus) {
  // Its own input, a text, somebody's HDF5 file and one that only lies beside a manifest.
  Hdf5Writer(tiny_ / "data.h5").close();
  write_text(tiny_ / "notes", "notes");
  write_text(tiny_ / "beside", "notes");
  fs::copy(tiny_ / "corpus.h5.manifest", tiny_ / "beside.manifest");
  for (const char* name : {"a.txt", "run.yaml", "data.h5", "notes", "beside"}) {
    const std::string before = read_text(tiny_ / name);
    for (const bool force : {true, false}) {
      EXPECT_FAULT(prepare(tiny_ / name, force), 2, "exists already and is not a corpus with a manifest beside it");
    }
    EXPECT_EQ(read_text(tiny_ / name), before);
  }
}

TEST_F(PrepareOver, LinksFifosAndDevices) {
  const std::string before = read_text(tiny_.corpus());
  fs::create_symlink(tiny_.corpus(), tiny_ / "link.h5");
  fs::create_symlink(tiny_ / "nowhere", tiny_ / "dangling.h5");
  ASSERT_EQ(::mkfifo((tiny_ / "fifo").c_str(), 0600), 0);
  EXPECT_FAULT(prepare(tiny_ / "link.h5"), 2, "link.h5: is a link");
  EXPECT_FAULT(prepare(tiny_ / "dangling.h5"), 2, "dangling.h5: is a link");
  EXPECT_FAULT(prepare(tiny_ / "fifo"), 2, "fifo: is a FIFO");
  EXPECT_FAULT(prepare("/dev/null"), 2, "/dev/null: is a device");
  EXPECT_TRUE(fs::is_fifo(tiny_ / "fifo"));
  EXPECT_EQ(read_text(tiny_.corpus()), before);
}

TEST_F(PrepareOver, WhatLiesBeside) {
  write_text(tiny_ / "new.h5.manifest", "names");
  EXPECT_FAULT(prepare(tiny_ / "new.h5"), 2, "new.h5.manifest: exists already and is not the manifest of a corpus");
  EXPECT_EQ(read_text(tiny_ / "new.h5.manifest"), "names");
  fs::rename(tiny_ / "corpus.h5.manifest", tiny_ / "new.h5.manifest");
  EXPECT_FAULT(prepare(tiny_ / "new.h5", false), 2, "new.h5.manifest: exists already, without its corpus; use --force");
  EXPECT_EQ(prepare(tiny_ / "new.h5").code, 0);
  write_text(tiny_ / "new.h5.partial", "notes");
  EXPECT_FAULT(prepare(tiny_ / "new.h5"), 2, "new.h5.partial: exists already");
}

TEST_F(PrepareOver, ACorpusEvenADamagedOne) {
  write_text(tiny_ / "corpus.h5.partial", read_text(tiny_.corpus()).substr(0, 3000));  // of a killed one
  EXPECT_EQ(prepare(tiny_.corpus()).code, 0);
  EXPECT_FALSE(fs::exists(tiny_ / "corpus.h5.partial"));
  fs::resize_file(tiny_.corpus(), 1000);
  EXPECT_EQ(prepare(tiny_.corpus()).code, 0);
  fs::resize_file(tiny_.corpus(), 0);
  EXPECT_EQ(prepare(tiny_.corpus()).code, 0);
  EXPECT_EQ(run_quire({"inspect", tiny_.corpus().string()}).code, 0);
}

TEST_F(PrepareOver, TheCorpusThatItReads) {
  const std::string before = read_text(tiny_.corpus());
  EXPECT_FAULT(run_quire({"prepare", "--task", "passkey", "--set", "length=300", "--split", "train=2", "--filler",
                          tiny_.corpus().string(), "--output", tiny_.corpus().string(), "--force"}),
               2, "the output is the corpus that --filler reads");
  EXPECT_EQ(read_text(tiny_.corpus()), before);
}

TEST(Keeping, NeedleReplacesPicturesOnly) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const auto draw = [&](const fs::path& file) {
    return run_quire({"needle", (tiny / "run").string(), "--lengths", "256", "--depths", "0", "--samples", "1", "--svg",
                      file.string()});
  };
  ASSERT_EQ(draw(tiny / "n.svg").code, 0);
  EXPECT_EQ(draw(tiny / "n.svg").code, 0);
  fs::create_symlink(tiny / "n.svg", tiny / "link.svg");
  ASSERT_EQ(::mkfifo((tiny / "fifo").c_str(), 0600), 0);
  write_text(tiny / "other.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>\n");
  const std::string config = read_text(tiny.config());
  EXPECT_FAULT(draw(tiny.config()), 2, "exists already and is not a picture of quire needle");
  EXPECT_FAULT(draw(tiny / "other.svg"), 2, "exists already and is not a picture of quire needle");
  EXPECT_FAULT(draw(tiny / "link.svg"), 2, "link.svg: is a link");
  EXPECT_FAULT(draw(tiny / "fifo"), 2, "fifo: is a FIFO");
  EXPECT_FAULT(draw("/dev/null"), 2, "/dev/null: is a device");
  EXPECT_EQ(read_text(tiny.config()), config);
  EXPECT_TRUE(fs::is_symlink(tiny / "link.svg"));
}

}  // namespace
}  // namespace quire::test
