// CORPUS.verified remembers that the checksum of a corpus file was verified, so that the file need not be read again
// until it changes. It lies beside the corpus, or in the user's cache folder where that folder is read-only.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "core/files/file.h"

namespace quire {

// When the checksum of a corpus is verified.
enum class Verify : uint8_t {
  always,  // the whole file is read for its checksum
  once,    // the file is read only when it has changed since it was verified
  done,    // another rank of this host has just verified it: only size and structure are looked at
};

class CorpusStamp {
 public:
  // `checksum` is that of the manifest of the open corpus file. A file that was changed less than `settle` ago is not
  // trusted and not remembered, because another change might not show in its times.
  CorpusStamp(const File& corpus, std::string checksum, std::chrono::nanoseconds settle);

  // Returns whether the file is the one that was verified. A stamp that cannot be read counts as none.
  bool verified() const { return verified_; }
  // Returns whether the token ids of a split were verified as well.
  bool checked(const std::string& split) const { return verified_ && splits_.count(split) > 0; }
  // Both write the stamp. If it cannot be written, the next process verifies again.
  void set_verified();
  void set_checked(const std::string& split);

 private:
  std::string to_json() const;
  void read();
  void write() const;

  std::filesystem::path beside_;
  std::filesystem::path cached_;  // empty without a cache folder
  std::string identity_;          // inode, size and times of the file, and its checksum
  bool settled_ = false;
  bool verified_ = false;
  std::set<std::string> splits_;
};

}  // namespace quire
