// The bytes of a file, decompressed when its name ends in .gz or .zst.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace quire {

enum class Compression : uint8_t { none, gzip, zstd };

// Returns the compression that the end of the name gives, in upper or lower case.
Compression compression_of(const std::filesystem::path& path);

class ByteSource {
 public:
  virtual ~ByteSource();
  // Fills the buffer as far as the data go: fewer bytes mean the end. Throws Error(data) with the file and the offset
  // in it for compressed data that is damaged or truncated.
  virtual size_t read(std::span<char> buffer) = 0;
  // Returns how many bytes of the file itself were read so far.
  virtual int64_t consumed() const = 0;
};

}  // namespace quire
