// The folder of one run: config.yaml, metrics.jsonl, log.txt, checkpoints/.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace quire {

// While it lives no other process can create or open the same run. It has two locks: one on the folder, which network
// file systems keep local to a host, and one on the file .lock in it, which they keep on the server for all hosts.
class RunDirectory {
 public:
  // The time to wait for a lock: a server releases the lock of a crashed host after its lease, which takes a minute and
  // a half for NFS.
  static constexpr std::chrono::seconds kLease{120};
  // Creates a new run. Throws Error(config) when the folder already has one or the remains of one, Error(disk) when it
  // cannot be made or written.
  static RunDirectory create(const std::filesystem::path& path);
  // Opens a run to continue it. Throws Error(config) when there is none, Error(data) when its log or metrics are no
  // regular files. It waits for `patience` when a process on another host has the lock.
  static RunDirectory open(const std::filesystem::path& path, std::chrono::milliseconds patience = kLease);

  // Opens the same run on another rank, which leaves the lock to root. Throws Error(disk) when the rank does not see
  // the folder.
  static RunDirectory of_root(const std::filesystem::path& path);

  // Returns whether a process has locked the run.
  static bool is_in_use(const std::filesystem::path& path);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.yaml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path log() const { return path_ / "log.txt"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

 private:
  RunDirectory(std::filesystem::path path, bool lock);
  void lock_on_all_hosts(std::chrono::milliseconds patience);

  std::filesystem::path path_;
  int descriptor_ = -1;
  int lock_ = -1;  // descriptor of the file .lock
};

// Returns runs/NAME below the current folder. Throws Error(config) for a name that is not a single folder name.
std::filesystem::path default_run_directory(const std::string& name);

}  // namespace quire
