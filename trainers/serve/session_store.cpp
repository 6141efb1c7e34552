#include "trainers/serve/session_store.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"
#include "trainers/serve/serve_error.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxSessions = 4096;  // in main memory

}  // namespace

SessionStore::SessionStore(SessionLimits limits, SessionModel model)
    : limits_(std::move(limits)), model_(std::move(model)) {
  if (limits_.folder.empty()) return;
  std::error_code error;
  fs::create_directories(limits_.folder, error);
  if (!fs::is_directory(limits_.folder)) {
    fail(ErrorKind::disk, "{}: is no folder and cannot be made one ({}); give --sessions another one",
         limits_.folder.string(), error.message());
  }
}

// Names hold no slash and begin with no dot (parse_session_name), so the file lies in the folder.
fs::path SessionStore::file_of(const std::string& name) const {
  return limits_.folder / (name + ".session");
}

std::shared_ptr<const Session> SessionStore::find_in_memory(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) { return one.name == name; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front().session;
}

std::shared_ptr<const Session> SessionStore::find(const std::string& name) {
  if (auto session = find_in_memory(name)) return session;
  if (!limits_.folder.empty()) {
    const std::lock_guard lock(disk_);
    if (auto session = find_in_memory(name)) return session;  // another request has read it meanwhile
    if (fs::is_regular_file(file_of(name))) {
      auto session = read_session(file_of(name), model_);
      keep(name, session);
      return session;
    }
  }
  throw ServeError(404, fmt::format("there is no session {}; send its text to /v1/sessions first (sessions that were "
                                    "not used for long are dropped)",
                                    name));
}

// Behind it the store may be gone.
void SessionStore::Claim::release() {
  if (name_.empty()) return;
  const std::lock_guard lock(store_.mutex_);
  store_.claimed_.erase(std::exchange(name_, ""));
}

std::shared_ptr<SessionStore::Claim> SessionStore::claim(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (claimed_.insert(name).second) return std::make_shared<Claim>(*this, name);
  throw ServeError(409, fmt::format("another request writes session {}; send this one when that has ended", name));
}

void SessionStore::keep(const std::string& name, std::shared_ptr<const Session> session) {
  const std::lock_guard lock(mutex_);
  int64_t living = session->bytes();
  std::erase_if(living_, [](const auto& one) { return one.expired(); });
  for (const auto& one : living_) {
    if (const auto other = one.lock()) living += other->bytes();
  }
  if (living > 2 * limits_.bytes) throw ServeError(503, "requests use too many sessions; send it again later");
  living_.push_back(session);
  entries_.remove_if([&](const Entry& one) {
    if (one.name == name) bytes_ -= one.session->bytes();
    return one.name == name;
  });
  bytes_ += session->bytes();
  entries_.push_front({name, std::move(session)});
  while ((bytes_ > limits_.bytes || entries_.size() > kMaxSessions) && entries_.size() > 1) {
    bytes_ -= entries_.back().session->bytes();
    entries_.pop_back();
  }
}

void SessionStore::put(const std::string& name, std::shared_ptr<const Session> session) {
  if (session->bytes() > limits_.bytes) {
    throw ServeError(507, fmt::format("the session takes {} bytes of the {} for all; start the server with a larger "
                                      "--session-memory",
                                      session->bytes(), limits_.bytes));
  }
  const std::lock_guard lock(disk_);
  if (!limits_.folder.empty() && fs::exists(file_of(name))) write(name, *session);
  keep(name, std::move(session));
}

int64_t SessionStore::disk_bytes_without(const fs::path& file) const {
  int64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(limits_.folder)) {
    std::error_code gone;
    const auto size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
    if (!gone && entry.path() != file) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

void SessionStore::save(const std::string& name) {
  if (limits_.folder.empty())
    throw ServeError(400, "sessions cannot be saved; start the server with --sessions FOLDER");
  const std::shared_ptr<const Session> session = find(name);
  const std::lock_guard lock(disk_);
  write(name, *session);
}

void SessionStore::write(const std::string& name, const Session& session) const {
  if (disk_bytes_without(file_of(name)) + session.bytes() > limits_.disk_bytes) {
    throw ServeError(507, fmt::format("saved sessions would take more than {} bytes; delete some, or start the server "
                                      "with a larger --session-disk",
                                      limits_.disk_bytes));
  }
  write_session(file_of(name), session, model_);
}

void SessionStore::erase(const std::string& name) {
  bool found = false;
  {
    const std::lock_guard lock(mutex_);
    entries_.remove_if([&](const Entry& one) {
      if (one.name != name) return false;
      found = true;
      bytes_ -= one.session->bytes();
      return true;
    });
  }
  if (!limits_.folder.empty()) {
    const std::lock_guard lock(disk_);
    std::error_code ignored;
    found = fs::remove(file_of(name), ignored) || found;
  }
  if (!found) throw ServeError(404, fmt::format("there is no session {}", name));
}

std::vector<SessionStore::Listed> SessionStore::list() {
  std::map<std::string, int64_t> stored;  // bytes by name
  if (!limits_.folder.empty()) {
    const std::lock_guard lock(disk_);
    for (const fs::directory_entry& entry : fs::directory_iterator(limits_.folder)) {
      std::error_code gone;
      const auto bytes = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
      if (!gone && entry.path().extension() == ".session") stored[entry.path().stem()] = static_cast<int64_t>(bytes);
    }
  }
  std::vector<Listed> all;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    const bool saved = stored.erase(entry.name) > 0;
    all.push_back({entry.name, entry.session->tokens, entry.session->bytes(), saved});
  }
  for (const auto& [name, bytes] : stored) all.push_back({name, std::nullopt, bytes, true});
  return all;
}

int64_t SessionStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t SessionStore::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

}  // namespace quire
