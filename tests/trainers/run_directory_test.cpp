#include "trainers/run/run_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

template <class Work>
void expect_error(ErrorKind kind, const std::string& part, Work&& work) {
  try {
    work();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(RunDirectory, IsNeverOverwritten) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "runs/first";
  {
    const RunDirectory run = RunDirectory::create(path);
    EXPECT_TRUE(std::filesystem::is_directory(run.checkpoints()));
    std::ofstream(run.config()) << "run: {}\n";
    expect_error(ErrorKind::config, "another process is running here", [&] { RunDirectory::create(path); });
    expect_error(ErrorKind::config, "another process is running here", [&] { RunDirectory::open(path); });
  }
  expect_error(ErrorKind::config, "already holds a run; continue it with --resume " + path.string(),
               [&] { RunDirectory::create(path); });
  EXPECT_EQ(RunDirectory::open(path).metrics(), path / "metrics.jsonl");
}

// Network file systems keep a lock of a folder to one host, and one of a file on the server.
TEST(RunDirectory, AnotherHostThatHoldsItIsWaitedForAndNamed) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "run";
  {
    const RunDirectory run = RunDirectory::create(path);
    std::ofstream(run.config()) << "run: {}\n";
    const std::string holder = read_text_file(path / ".lock");
    EXPECT_TRUE(holder.starts_with(fmt::format("process {} on ", ::getpid()))) << holder;
  }
  EXPECT_FALSE(RunDirectory::is_in_use(path));
  const int other = ::open((path / ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(RunDirectory::is_in_use(path));
  expect_error(ErrorKind::config, fmt::format("another process is running here (process {} on ", ::getpid()),
               [&] { RunDirectory::open(path, std::chrono::milliseconds(250)); });
  std::thread server([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::close(other);
  });
  EXPECT_NO_THROW(RunDirectory::open(path));
  server.join();
}

TEST(RunDirectory, AnEmptyOneIsTaken) {
  const test::TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "run");
  EXPECT_NO_THROW(RunDirectory::create(folder / "run"));
  EXPECT_NO_THROW(RunDirectory::create(folder / "run"));  // the first attempt ended before it wrote its configuration
}

// A run that lost its config.yaml, or files of another program.
TEST(RunDirectory, WhatIsLeftOfARunIsNotTaken) {
  for (const char* name : {"metrics.jsonl", "log.txt", "checkpoints/step-00000005"}) {
    const test::TemporaryDirectory folder;
    std::filesystem::create_directories((folder / "run" / name).parent_path());
    std::ofstream(folder / "run" / name) << "somebody's";
    expect_error(ErrorKind::config, "choose another --run-dir", [&] { RunDirectory::create(folder / "run"); });
    EXPECT_EQ(read_text_file(folder / "run" / name), "somebody's");
  }
}

TEST(RunDirectory, FilesThatAreNoFiles) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "run";
  { std::ofstream(RunDirectory::create(path).config()) << "run: {}\n"; }
  for (const char* name : {"metrics.jsonl", "log.txt"}) {
    std::filesystem::create_symlink("/dev/zero", path / name);
    expect_error(ErrorKind::data, "is not a regular file", [&] { RunDirectory::open(path); });
    std::filesystem::remove(path / name);
  }
}

TEST(RunDirectory, WhatCannotBeMadeIsADiskError) {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "file") << "x";
  expect_error(ErrorKind::disk, "cannot be made", [&] { RunDirectory::create(folder / "file" / "run"); });
  expect_error(ErrorKind::disk, "cannot be made", [&] { RunDirectory::create("/proc/run"); });
  expect_error(ErrorKind::config, "no run here", [&] { RunDirectory::open(folder / "absent"); });
}

TEST(RunDirectory, DefaultNames) {
  EXPECT_EQ(default_run_directory("quickstart"), std::filesystem::path("runs/quickstart"));
  for (const char* name : {"", ".", "..", "a/b"}) {
    expect_error(ErrorKind::config, "run.name", [&] { default_run_directory(name); });
  }
}

TEST(Log, GoesToTheFileWithTimes) {
  const test::TemporaryDirectory folder;
  log_to_file(folder / "log.txt");
  log_info("hello {}");
  log_file_only("quiet");
  const std::string text = read_text_file(folder / "log.txt");
  EXPECT_NE(text.find(" info: hello {}\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" info: quiet\n"), std::string::npos) << text;
  std::ofstream(folder / "file") << "x";
  expect_error(ErrorKind::disk, "the log cannot be opened", [&] { log_to_file(folder / "file" / "log.txt"); });
}

}  // namespace
}  // namespace quire
