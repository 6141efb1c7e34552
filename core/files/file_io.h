// Files that exist whole or not at all, with checksums. A failure is Error(disk) naming the path and the reason, unless
// stated otherwise.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/checksum.h"
#include "core/files/file.h"

namespace quire {

// Returns the checksum of the bytes from the current position to the end; streams. After `patience` a message says how
// far the work is, and again whenever three times as much time has passed.
std::string checksum_of_file(File& file, std::chrono::milliseconds patience = std::chrono::seconds(10));
std::string checksum_of_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::disk);

// Limits for a file that is read into memory at once.
struct TextLimits {
  ErrorKind kind = ErrorKind::disk;       // kind of every failure
  int64_t max_bytes = int64_t{64} << 20;  // a larger file is refused before anything is read
};

// Read regular files only; a FIFO or device is refused.
std::vector<std::byte> read_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::disk);
std::string read_text_file(const std::filesystem::path& path, const TextLimits& limits = {});

// Writes all bytes and flushes them to disk (fsync). An existing file is replaced in place, so a failure can leave half
// a file: callers write under another name and rename.
void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_durably(const std::filesystem::path& path, std::string_view text);
// Writes PATH.partial, flushes it, renames it to PATH and flushes the folder. A failure removes PATH.partial and leaves
// an older PATH as it was.
void replace_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void replace_file_atomically(const std::filesystem::path& path, std::string_view text);

void flush_file(const std::filesystem::path& path);       // fsync
void flush_directory(const std::filesystem::path& path);  // fsync of the folder entry list
// Calls rename(2), then flush_directory for the parent.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// Returns PATH with a suffix appended to the file name.
std::filesystem::path with_suffix(const std::filesystem::path& path, std::string_view suffix);

}  // namespace quire
