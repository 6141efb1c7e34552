#include "data/corpus/corpus_stamp.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

// Follows the XDG base directories; empty without a home.
fs::path cache_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder == '/') {
    return fs::path(folder) / "quire";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') return fs::path(home) / ".cache/quire";
  return {};
}

int64_t nanoseconds_of(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

CorpusStamp::CorpusStamp(const File& corpus, std::string checksum, std::chrono::nanoseconds settle)
    : beside_(with_suffix(corpus.path(), ".verified")) {
  if (const fs::path cache = cache_folder(); !cache.empty()) {
    const std::string path = fs::absolute(corpus.path()).string();
    cached_ = cache / (checksum_of(std::as_bytes(std::span(path))) + ".verified");
  }
  struct stat status {};
  if (::fstat(corpus.descriptor(), &status) != 0) return;
  const int64_t changed = std::max(nanoseconds_of(status.st_mtim), nanoseconds_of(status.st_ctim));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  settled_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - changed >= settle.count();
  // The device number is left out: each host numbers a network file system in its own way, and one stamp serves all
  // hosts.
  identity_ = fmt::format("{} {} {} {} {}", status.st_ino, status.st_size, nanoseconds_of(status.st_mtim),
                          nanoseconds_of(status.st_ctim), checksum);
  if (settled_) read();
}

void CorpusStamp::read() {
  for (const fs::path& path : {beside_, cached_}) {
    std::error_code ignored;
    if (path.empty() || !fs::is_regular_file(path, ignored)) continue;
    try {
      const nlohmann::json json = parse_json(read_text_file(path));
      if (json.at("file").get<std::string>() != identity_) continue;
      splits_ = json.at("splits").get<std::set<std::string>>();
      verified_ = true;
      return;
    } catch (const std::exception&) {
      // A stamp that is damaged, or was written by another program, counts as none.
      splits_.clear();
    }
  }
}

std::string CorpusStamp::to_json() const {
  return nlohmann::ordered_json{{"file", identity_}, {"splits", splits_}}.dump() + "\n";
}

void CorpusStamp::write() const {
  if (!settled_) return;
  for (const fs::path& path : {beside_, cached_}) {
    if (path.empty()) continue;
    try {
      if (path == cached_) fs::create_directories(path.parent_path());
      return replace_file_atomically(path, to_json());
    } catch (const std::exception&) {
      // A read-only folder is skipped.
    }
  }
}

void CorpusStamp::set_verified() {
  verified_ = true;
  write();
}

void CorpusStamp::set_checked(const std::string& split) {
  if (!splits_.insert(split).second) return;
  write();
}

}  // namespace quire
