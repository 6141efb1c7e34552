// `quire inspect` of what is damaged, and of what quire did not make.
#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

void flip_middle(const fs::path& file) {
  std::string bytes = read_text(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(file, bytes);
}

TEST(InspectFaults, WhatQuireDidNotMake) {
  const TinyRun tiny;
  fs::create_directory(tiny / "folder");
  write_text(tiny / "text.txt", "hello");
  write_text(tiny / "empty", "");
  EXPECT_FAULT(run_quire({"inspect", (tiny / "absent").string()}), 2, "absent: no such file or folder");
  for (const char* name : {"folder", "text.txt", "empty", "run.yaml"}) {
    EXPECT_FAULT(run_quire({"inspect", (tiny / name).string()}), 2, "is no corpus, no checkpoint and no run directory");
  }
  EXPECT_FAULT(run_quire({"inspect"}), 2, "--help");
  EXPECT_FAULT(run_quire({"inspect", tiny.corpus().string(), "--parameters"}), 2, "only a checkpoint has --parameters");
}

TEST(InspectFaults, ADamagedCorpus) {
  const TinyRun tiny;
  const std::string good = read_text(tiny.corpus());
  flip_middle(tiny.corpus());
  EXPECT_FAULT(run_quire({"inspect", tiny.corpus().string()}), 3, "corpus.h5");
  write_text(tiny.corpus(), good.substr(0, 5));  // not even HDF5 any more
  EXPECT_FAULT(run_quire({"inspect", tiny.corpus().string()}), 3, "corpus.h5");
  write_text(tiny.corpus(), good);
  fs::remove(tiny / "corpus.h5.manifest");
  EXPECT_FAULT(run_quire({"inspect", tiny.corpus().string()}), 3, "manifest");
}

TEST(InspectFaults, ADamagedCheckpoint) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  flip_middle(tiny.checkpoint("run", 20) / "optimizer.h5");
  EXPECT_FAULT(run_quire({"inspect", tiny.checkpoint("run", 20).string()}), 4,
               "optimizer.h5: is damaged (wrong checksum)");
  // The run is shown with what is left of it.
  for (const bool json : {false, true}) {
    std::vector<std::string> arguments{"inspect", (tiny / "run").string()};
    if (json) arguments.emplace_back("--json");
    const ProgramResult result = run_quire(arguments);
    EXPECT_EQ(result.code, 4) << result.err;
    ASSERT_EQ(result.errors().size(), 1U) << result.err;
    EXPECT_NE(result.err.find("step 20 is damaged"), std::string::npos) << result.err;
    EXPECT_NE(result.out.find(json ? "\"latest\":10" : "newest whole checkpoint: step 10 of 20"), std::string::npos)
        << result.out;
  }
  fs::remove(tiny.checkpoint("run", 20) / "manifest.json");
  EXPECT_FAULT(run_quire({"inspect", tiny.checkpoint("run", 20).string()}), 4, "manifest.json: is missing");
}

}  // namespace
}  // namespace quire::test
