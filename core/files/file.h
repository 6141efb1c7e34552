// Open files and memory maps. A failure is Error(disk) naming the path and the reason, unless stated otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/error.h"

namespace quire {

class MapGuard;

// A file descriptor that closes itself. Short reads and writes are completed and interrupted ones repeated.
class File {
 public:
  // Opens a file for reading. A folder, FIFO, socket or device is refused without being read. Failures are errors of
  // `kind`.
  static File open(const std::filesystem::path& path, ErrorKind kind = ErrorKind::disk);
  static File open_folder(const std::filesystem::path& path);  // for flush() of its entries
  // Opens a file for writing. An existing regular file is emptied; a link, FIFO, socket or device is refused.
  static File create(const std::filesystem::path& path);
  // Makes a temporary file without a name for reading and writing: it disappears when the process ends, even by a
  // crash. It has the name `.quire-scratch-*` for a moment, and an empty file that a killed process left under such a
  // name is removed here.
  static File scratch(const std::filesystem::path& folder);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  void write(std::span<const std::byte> bytes);
  // Fills the buffer as far as the file goes; returns the number of bytes, 0 at the end.
  size_t read(std::span<std::byte> buffer);
  // Reads from an offset and leaves the position of read() as it is.
  size_t read_at(int64_t offset, std::span<std::byte> buffer) const;
  void rewind();
  void flush();  // fsync
  int64_t size() const;
  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_ = -1;
  std::filesystem::path path_;  // for messages
};

// A read-only map of a whole file, whose pages are loaded when they are used. The map outlives the File. When another
// process truncates the file, the next access beyond its new end stops the program with one line and the exit code of
// Error(data) (core/files/map_guard.h).
class MappedFile {
 public:
  explicit MappedFile(const File& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

 private:
  void* address_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<MapGuard> guard_;
};

// Returns zeroed memory in a nameless file in `folder`. Its disk space is reserved at once, so that a full disk is an
// error here and not a signal later. The file disappears when the process ends, even by a crash.
std::shared_ptr<void> map_scratch_file(const std::filesystem::path& folder, size_t bytes);
// Frees the main memory behind part of a mapped file; the file keeps its content.
void forget_pages(void* address, size_t bytes);

}  // namespace quire
