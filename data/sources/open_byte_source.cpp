#include "data/sources/open_byte_source.h"

#include "core/files/file.h"
#include "data/sources/compressed_source.h"

namespace quire {

namespace {

class UncompressedSource : public ByteSource {
 public:
  explicit UncompressedSource(File file) : file_(std::move(file)) {}
  size_t read(std::span<char> buffer) override {
    const size_t count = file_.read(std::as_writable_bytes(buffer));
    consumed_ += static_cast<int64_t>(count);
    return count;
  }
  int64_t consumed() const override { return consumed_; }

 private:
  File file_;
  int64_t consumed_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path) {
  File file = File::open(path);
  switch (compression_of(path)) {
    case Compression::gzip:
      return open_gzip(std::move(file));
    case Compression::zstd:
      return open_zstd(std::move(file));
    case Compression::none:
      break;
  }
  return std::make_unique<UncompressedSource>(std::move(file));
}

}  // namespace quire
