#include "data/sources/byte_source.h"

namespace quire {

ByteSource::~ByteSource() = default;

Compression compression_of(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (extension == ".gz") return Compression::gzip;
  return extension == ".zst" ? Compression::zstd : Compression::none;
}

}  // namespace quire
