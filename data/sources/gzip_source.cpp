#include <zlib.h>

#include <algorithm>
#include <string_view>

#include "core/check.h"
#include "data/sources/compressed_source.h"

namespace quire {

namespace {

constexpr int kGzipOnly = 16;  // added to the window bits: neither zlib nor raw data

class GzipSource : public CompressedSource {
 public:
  explicit GzipSource(File file) : CompressedSource(std::move(file), "gzip") {
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) fail(ErrorKind::memory, "gzip: no memory to begin");
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

 protected:
  Progress decompress(std::span<const char> compressed, std::span<char> buffer) override {
    if (ended_) {
      // After a member comes another one or the end. Zeros are padding from tapes and copies of whole blocks.
      const std::string_view rest(compressed.data(), compressed.size());
      const size_t zeros = std::min(rest.find_first_not_of('\0'), rest.size());
      if (zeros > 0 || compressed.empty()) return {.taken = zeros, .made = 0, .complete = true};
      inflateReset(&stream_);
      ended_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));  // zlib only reads it
    stream_.avail_in = static_cast<uInt>(compressed.size());
    const size_t room = std::min(buffer.size(), size_t{1} << 30);
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) fail_without_memory();
    // Z_BUF_ERROR only says that no progress was possible.
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      fail_damaged(stream_.msg != nullptr ? stream_.msg : "not gzip data");
    }
    ended_ = result == Z_STREAM_END;
    return {.taken = compressed.size() - stream_.avail_in, .made = room - stream_.avail_out, .complete = ended_};
  }

 private:
  z_stream stream_{};
  bool ended_ = false;  // whether the last member has ended
};

}  // namespace

std::unique_ptr<ByteSource> open_gzip(File file) {
  return std::make_unique<GzipSource>(std::move(file));
}

}  // namespace quire
