// The folder of one run: config.yaml, metrics.jsonl, log.txt, checkpoints/.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace quire {

// While it lives no other process can create or open the same run. Two locks say so: one of the folder, which network
// file systems keep to one host, and one of the file .lock in it, which they keep on the server for all hosts.
class RunDirectory {
 public:
  // A server gives up the lock of a host that has crashed after its lease, which takes a minute and a half for NFS.
  static constexpr std::chrono::seconds kLease{120};
  // A new run. Error(config) when the folder already holds one or what is left of one, Error(disk) when it cannot be
  // made or written.
  static RunDirectory create(const std::filesystem::path& path);
  // A run to go on with. Error(config) when there is none, Error(data) when its log or metrics are no regular files. A
  // process on another host that holds it is waited for so long.
  static RunDirectory open(const std::filesystem::path& path, std::chrono::milliseconds patience = kLease);

  // The same run for another rank, which leaves the lock to root. Error(disk) when it does not see the folder.
  static RunDirectory of_root(const std::filesystem::path& path);

  // Whether a process holds the run right now.
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
  int lock_ = -1;  // of the file .lock
};

// runs/NAME below the current folder. Error(config) for a name that is not a single folder name.
std::filesystem::path default_run_directory(const std::string& name);

}  // namespace quire
