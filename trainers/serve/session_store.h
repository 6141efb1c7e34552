// Sessions by name: in main memory up to a limit, the longest unused ones leave first; on disk those that were saved.
#pragma once

#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainers/serve/session_file.h"

namespace quire {

struct SessionLimits {
  int64_t bytes = int64_t{1} << 30;       // in main memory
  int64_t disk_bytes = int64_t{8} << 30;  // in the folder
  std::filesystem::path folder;           // empty: none can be saved
};

// Functions may be called from any thread.
class SessionStore {
 public:
  SessionStore(SessionLimits limits, SessionModel model);

  // Returns the session, from disk when it is not in main memory. Throws ServeError(404) when there is none.
  std::shared_ptr<const Session> find(const std::string& name);
  // Keeps other requests from writing a session until it is released or destroyed; one thread at a time uses it.
  class Claim {
   public:
    Claim(SessionStore& store, std::string name) : store_(store), name_(std::move(name)) {}
    ~Claim() { release(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    void release();

   private:
    SessionStore& store_;
    std::string name_;
  };
  // Throws ServeError(409) while another request writes this session.
  std::shared_ptr<Claim> claim(const std::string& name);
  // Replaces the session; one that was saved is saved again. Throws ServeError(503) when requests use too many others,
  // and ServeError(507) for one that is larger than all of the memory or disk for sessions; then nothing has changed.
  void put(const std::string& name, std::shared_ptr<const Session> session);
  // Writes the session to the folder. Throws ServeError.
  void save(const std::string& name);
  // Removes the session from main memory and disk. Throws ServeError(404) when there is none.
  void erase(const std::string& name);

  struct Listed {
    std::string name;
    std::optional<int64_t> tokens;  // none: the session is on disk alone
    int64_t bytes = 0;
    bool saved = false;
  };
  // Returns those in main memory, the one used last first, and then those on disk alone, by name.
  std::vector<Listed> list();
  int64_t bytes() const;
  int64_t count() const;

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const Session> session;
  };
  std::filesystem::path file_of(const std::string& name) const;
  int64_t disk_bytes_without(const std::filesystem::path& file) const;
  void write(const std::string& name, const Session& session) const;  // with disk_ locked
  std::shared_ptr<const Session> find_in_memory(const std::string& name);
  void keep(const std::string& name, std::shared_ptr<const Session> session);

  SessionLimits limits_;
  SessionModel model_;
  std::mutex disk_;                // one thread reads or writes the folder
  mutable std::mutex mutex_;       // of what follows
  std::list<Entry> entries_;       // the one used last first
  std::set<std::string> claimed_;  // names of sessions that requests write
  int64_t bytes_ = 0;
  // All that exist, with those that requests still use.
  std::vector<std::weak_ptr<const Session>> living_;
};

}  // namespace quire
