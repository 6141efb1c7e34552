// Devices, FIFOs and huge files where a small file is expected, and a corpus that becomes shorter while it is read.
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Puts one after the other in the place of a file: what is never read to its end, and what is never opened.
void for_each_odd_file(const fs::path& path, const std::function<void(const std::string& part)>& use) {
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  use("is a device, not a regular file");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  use("is a FIFO, not a regular file");
  fs::remove(path);
  write_text(path, "");
  fs::resize_file(path, uintmax_t{20} << 30);
  use("has 21474836480 bytes");
  fs::remove(path);
}

TEST(FileKindFaults, Configurations) {
  const TinyRun tiny;
  for_each_odd_file(tiny.config(), [&](const std::string& part) {
    EXPECT_FAULT(tiny.train("run"), 2, part);
    EXPECT_FAULT(run_quire({"config", tiny.config().string(), "--check"}), 2, part);
  });
}

TEST(FileKindFaults, ManifestsAndLists) {
  const TinyRun tiny;
  write_text(tiny / "a.txt", "a text");
  for_each_odd_file(tiny / "names", [&](const std::string& part) {
    EXPECT_FAULT(run_quire({"prepare", "--input", (tiny / "a.txt").string(), "--split",
                            "valid=@" + (tiny / "names").string(), "--output", (tiny / "new.h5").string()}),
                 3, part);
  });
  for_each_odd_file(tiny / "corpus.h5.manifest",
                    [&](const std::string& part) { EXPECT_FAULT(tiny.train("run"), 3, part); });
}

TEST(FileKindFaults, ACorpus) {
  const TinyRun tiny;
  fs::remove(tiny.corpus());
  ASSERT_EQ(::mkfifo(tiny.corpus().c_str(), 0600), 0);
  EXPECT_FAULT(tiny.train("run"), 3, "corpus.h5: is a FIFO");
  EXPECT_FAULT(run_quire({"inspect", tiny.corpus().string()}), 3, "corpus.h5: is a FIFO");
}

TEST(FileKindFaults, FilesOfARun) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  for (const char* name : {"metrics.jsonl", "log.txt"}) {
    const std::string before = read_text(tiny / "run" / name);
    fs::remove(tiny / "run" / name);
    ASSERT_EQ(::mkfifo((tiny / "run" / name).c_str(), 0600), 0);
    EXPECT_FAULT(tiny.resume("run", {"schedule.steps=4"}), 3, std::string(name) + ": is not a regular file");
    fs::remove(tiny / "run" / name);
    write_text(tiny / "run" / name, before);
  }
  fs::resize_file(tiny / "run/metrics.jsonl", uintmax_t{20} << 30);
  EXPECT_FAULT(tiny.resume("run", {"schedule.steps=4"}), 3, "metrics.jsonl:3: a line of more than");
  EXPECT_FAULT(run_quire({"inspect", (tiny / "run").string()}), 3, "metrics.jsonl:3: a line of more than");
  fs::remove(tiny / "run/metrics.jsonl");
  for_each_odd_file(tiny / "run/config.yaml",
                    [&](const std::string& part) { EXPECT_FAULT(tiny.resume("run", {"schedule.steps=4"}), 2, part); });
  write_text(tiny / "manifest.json", read_text(tiny.checkpoint("run", 2) / "manifest.json"));
  fs::resize_file(tiny.checkpoint("run", 2) / "manifest.json", uintmax_t{20} << 30);
  EXPECT_FAULT(run_quire({"eval", tiny.checkpoint("run", 2).string()}), 4, "has 21474836480 bytes");
}

TEST(FileKindFaults, ACorpusThatIsTruncatedInPlace) {
  const TinyRun tiny;
  RunningProgram program(tiny.train_arguments("run", {"schedule.steps=10000000", "checkpoint.every=0"}));
  while (!fs::exists(tiny / "run/metrics.jsonl") && program.running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  fs::resize_file(tiny.corpus(), 0);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.code, 3) << result.signal << result.err;
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.errors().front().find("corpus.h5: became shorter while it was read"), std::string::npos);
}

}  // namespace
}  // namespace quire::test
