#include "core/files/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/files/map_guard.h"

namespace quire {

namespace {

[[noreturn]] void fail_with_errno(const char* action, const std::filesystem::path& path,
                                  ErrorKind kind = ErrorKind::disk) {
  const int error = errno;
  fail(kind, "cannot {} {}: {}", action, path.string(), std::generic_category().message(error));
}

// Repeats a call that a signal interrupts, as happens on network file systems and in long calls.
template <typename Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

int open_descriptor(const std::filesystem::path& path, int flags, const char* action,
                    ErrorKind kind = ErrorKind::disk) {
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (descriptor < 0) fail_with_errno(action, path, kind);
  return descriptor;
}

const char* name_of_kind(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISDIR(mode) ? "a folder" : "a device";
}

// Refuses everything that is no regular file, before anything is read or written. O_NONBLOCK keeps open() from waiting
// for a FIFO, and has no effect on a regular file.
void require_regular(int descriptor, const std::filesystem::path& path, ErrorKind kind) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail_with_errno("stat", path, kind);
  if (S_ISREG(status.st_mode)) return;
  fail(kind, "{}: is {}, not a regular file", path.string(), name_of_kind(status.st_mode));
}

constexpr std::string_view kScratch = ".quire-scratch-";

// Removes the empty scratch files of processes that were killed before they removed the name.
void remove_empty_scratch(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    struct stat status {};
    const bool ours = entry->path().filename().native().starts_with(kScratch);
    if (!ours || ::lstat(entry->path().c_str(), &status) != 0) continue;
    if (S_ISREG(status.st_mode) && status.st_size == 0) ::unlink(entry->path().c_str());
  }
}

}  // namespace

File File::open(const std::filesystem::path& path, ErrorKind kind) {
  File file(open_descriptor(path, O_RDONLY | O_NONBLOCK, "open", kind), path);
  require_regular(file.descriptor_, path, kind);
  return file;
}

File File::open_folder(const std::filesystem::path& path) {
  return {open_descriptor(path, O_RDONLY | O_DIRECTORY, "open"), path};
}

File File::create(const std::filesystem::path& path) {
  File file(open_descriptor(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, "create"), path);
  require_regular(file.descriptor_, path, ErrorKind::disk);
  if (uninterrupted([&] { return ::ftruncate(file.descriptor_, 0); }) != 0) fail_with_errno("empty", path);
  return file;
}

File File::scratch(const std::filesystem::path& folder) {
  remove_empty_scratch(folder);
  // O_TMPFILE is not used, because network file systems lack it.
  std::string name;
  const int descriptor = uninterrupted([&] {
    name = (folder / (std::string(kScratch) + "XXXXXX")).string();
    return ::mkostemp(name.data(), O_CLOEXEC);
  });
  if (descriptor < 0) fail_with_errno("create a temporary file in", folder);
  File file(descriptor, name);
  // Another process that starts at this moment may have removed the name already, as one that was left over.
  if (::unlink(name.c_str()) != 0 && errno != ENOENT) fail_with_errno("unlink", name);
  return file;
}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    if (written < 0) fail_with_errno("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

size_t File::read(std::span<std::byte> buffer) {
  size_t total = 0;
  while (total < buffer.size()) {
    const ssize_t count =
        uninterrupted([&] { return ::read(descriptor_, buffer.data() + total, buffer.size() - total); });
    if (count < 0) fail_with_errno("read", path_);
    if (count == 0) break;
    total += static_cast<size_t>(count);
  }
  return total;
}

size_t File::read_at(int64_t offset, std::span<std::byte> buffer) const {
  size_t total = 0;
  while (total < buffer.size()) {
    const ssize_t count = uninterrupted([&] {
      return ::pread(descriptor_, buffer.data() + total, buffer.size() - total, offset + static_cast<int64_t>(total));
    });
    if (count < 0) fail_with_errno("read", path_);
    if (count == 0) break;
    total += static_cast<size_t>(count);
  }
  return total;
}

void File::rewind() {
  if (::lseek(descriptor_, 0, SEEK_SET) < 0) fail_with_errno("seek in", path_);
}

void File::flush() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail_with_errno("flush", path_);
}

int64_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_with_errno("stat", path_);
  return status.st_size;
}

MappedFile::MappedFile(const File& file) : size_(static_cast<size_t>(file.size())) {
  if (size_ == 0) return;  // mmap refuses empty maps
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) fail_with_errno("map", file.path());
  address_ = address;
  guard_ = std::make_unique<MapGuard>(address_, size_, file.path());
}

std::shared_ptr<void> map_scratch_file(const std::filesystem::path& folder, size_t bytes) {
  const File file = File::scratch(folder);
  bytes = std::max<size_t>(bytes, 1);  // an empty file cannot be mapped
  // posix_fallocate returns the error and leaves errno unchanged.
  const auto reserve = [&] {
    errno = ::posix_fallocate(file.descriptor(), 0, static_cast<off_t>(bytes));
    return errno == 0 ? 0 : -1;
  };
  if (uninterrupted(reserve) != 0) {
    fail_with_errno(fmt::format("take {} bytes in", bytes).c_str(), folder);
  }
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) fail_with_errno("map", folder);
  return {address, [bytes](void* memory) { ::munmap(memory, bytes); }};
}

void forget_pages(void* address, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(address) / page * page;
  // This is advice; where the system ignores it, it frees the pages when it needs memory.
  ::madvise(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(address) + bytes - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  guard_.reset();
  if (address_ != nullptr) ::munmap(address_, size_);
}

}  // namespace quire
