#include "core/files/file_io.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/check.h"
#include "core/log.h"

namespace quire {

namespace {

constexpr size_t kChunk = size_t{1} << 20;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

template <typename Container>
Container read_whole(File& file, ErrorKind kind) {
  Container content(static_cast<size_t>(file.size()), typename Container::value_type{});
  const std::span<std::byte> buffer = std::as_writable_bytes(std::span(content.data(), content.size()));
  const size_t count = file.read(buffer);
  if (count != content.size()) {
    fail(kind, "cannot read {}: it became shorter while it was read", file.path().string());
  }
  return content;
}

}  // namespace

std::string checksum_of_file(File& file, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  Checksum checksum;
  std::vector<std::byte> buffer(kChunk);
  const Clock::time_point start = Clock::now();
  Clock::duration next = patience;
  int64_t read = 0;
  while (const size_t count = file.read(buffer)) {
    checksum.add(std::span(buffer).first(count));
    read += static_cast<int64_t>(count);
    const Clock::duration passed = Clock::now() - start;
    if (passed < next) continue;
    next = 3 * passed;
    const int64_t all = file.size();
    log_info(fmt::format("reading {} for its checksum: {:.2f} of {:.2f} GB, {:.0f} s", file.path().string(),
                         static_cast<double>(read) / 1e9, static_cast<double>(std::max(all, read)) / 1e9,
                         std::chrono::duration<double>(passed).count()));
  }
  return checksum.text();
}

std::string checksum_of_file(const std::filesystem::path& path, ErrorKind kind) {
  File file = File::open(path, kind);
  return checksum_of_file(file);
}

std::vector<std::byte> read_file(const std::filesystem::path& path, ErrorKind kind) {
  File file = File::open(path, kind);
  return read_whole<std::vector<std::byte>>(file, kind);
}

std::string read_text_file(const std::filesystem::path& path, const TextLimits& limits) {
  File file = File::open(path, limits.kind);
  if (const int64_t bytes = file.size(); bytes > limits.max_bytes) {
    fail(limits.kind, "{}: has {} bytes, and at most {} are read; is it the right file?", path.string(), bytes,
         limits.max_bytes);
  }
  return read_whole<std::string>(file, limits.kind);
}

void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  File file = File::create(path);
  file.write(bytes);
  file.flush();
}

void write_file_durably(const std::filesystem::path& path, std::string_view text) {
  write_file_durably(path, bytes_of(text));
}

void replace_file_atomically(const std::filesystem::path& path, std::string_view text) {
  replace_file_atomically(path, bytes_of(text));
}

void replace_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::filesystem::path partial = with_suffix(path, ".partial");
  try {
    write_file_durably(partial, bytes);
    rename_durably(partial, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

void flush_file(const std::filesystem::path& path) {
  File::open(path).flush();
}

void flush_directory(const std::filesystem::path& path) {
  // A bare file name has an empty parent.
  const std::filesystem::path folder = path.empty() ? std::filesystem::path(".") : path;
  const File file = File::open_folder(folder);
  int error = 0;
  do {
    error = ::fsync(file.descriptor()) == 0 ? 0 : errno;
  } while (error == EINTR);
  // Some network file systems cannot flush folders; there a rename is complete when it returns.
  if (error == 0 || error == EINVAL || error == ENOTSUP) return;
  fail(ErrorKind::disk, "cannot flush {}: {}", folder.string(), std::generic_category().message(error));
}

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) fail(ErrorKind::disk, "cannot rename {} to {}: {}", from.string(), to.string(), error.message());
  flush_directory(to.parent_path());
}

std::filesystem::path with_suffix(const std::filesystem::path& path, std::string_view suffix) {
  std::filesystem::path result = path;
  result += suffix;
  return result;
}

}  // namespace quire
