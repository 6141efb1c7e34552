// The bytes of a file, decompressed when its name ends in .gz or .zst.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace quire {

enum class Compression : uint8_t { none, gzip, zstd };

// By the end of the name, in any case.
Compression compression_of(const std::filesystem::path& path);

class ByteSource {
 public:
  virtual ~ByteSource();
  // Fills the buffer as far as the data go: fewer bytes mean the end. Compressed data that is damaged or cut off is
  // Error(data) with the file and the offset in it.
  virtual size_t read(std::span<char> buffer) = 0;
  // Bytes of the file itself that were read so far.
  virtual int64_t consumed() const = 0;
};

}  // namespace quire
