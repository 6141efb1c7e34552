// Opens a file as bytes, decompressed when its name ends in .gz or .zst.
#pragma once

#include "data/sources/byte_source.h"

namespace quire {

// Concatenated gzip members and zstd frames are read one after the other. Memory does not grow with the file.
std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path);

}  // namespace quire
