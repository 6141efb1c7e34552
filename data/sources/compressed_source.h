// The common part of gzip and zstd files: a window of compressed bytes that is refilled when it was used up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "data/sources/byte_source.h"

namespace quire {

class CompressedSource : public ByteSource {
 public:
  size_t read(std::span<char> buffer) override;
  int64_t consumed() const override { return begin_of_window_ + static_cast<int64_t>(used_); }

 protected:
  CompressedSource(File file, std::string format);

  struct Progress {
    size_t taken = 0;      // compressed bytes consumed
    size_t made = 0;       // bytes put into the buffer
    bool complete = true;  // a member or frame ended: the file may end here
  };
  // Decompresses as much as possible. When both `taken` and `made` are 0, it needs more compressed bytes.
  virtual Progress decompress(std::span<const char> compressed, std::span<char> buffer) = 0;
  [[noreturn]] void fail_damaged(const std::string& reason) const;
  [[noreturn]] void fail_without_memory() const;

 private:
  bool fill();

  File file_;
  std::string format_;
  std::vector<char> window_;
  size_t used_ = 0;
  size_t filled_ = 0;
  int64_t begin_of_window_ = 0;  // offset in the file
  bool complete_ = false;
};

std::unique_ptr<ByteSource> open_gzip(File file);
std::unique_ptr<ByteSource> open_zstd(File file);

}  // namespace quire
