#include <zstd.h>
#include <zstd_errors.h>

#include "core/check.h"
#include "data/sources/compressed_source.h"

namespace quire {

namespace {

constexpr int kLargestWindowLog = 31;  // for zstd --long=31, the largest window of the program

class ZstdSource : public CompressedSource {
 public:
  explicit ZstdSource(File file) : CompressedSource(std::move(file), "zstd"), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) fail(ErrorKind::memory, "zstd: no memory to begin");
    // A frame header may ask for a large window; zstd touches its memory only as it is filled.
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kLargestWindowLog);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

 protected:
  Progress decompress(std::span<const char> compressed, std::span<char> buffer) override {
    if (compressed.empty() && between_frames_) return {.taken = 0, .made = 0, .complete = any_frame_};
    ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    const size_t result = ZSTD_decompressStream(stream_, &out, &in);
    if (ZSTD_isError(result) != 0) {
      if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) fail_without_memory();
      fail_damaged(ZSTD_getErrorName(result));
    }
    between_frames_ = result == 0;
    any_frame_ = any_frame_ || between_frames_;
    return {.taken = in.pos, .made = out.pos, .complete = between_frames_};
  }

 private:
  ZSTD_DStream* stream_;
  bool between_frames_ = true;
  bool any_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_zstd(File file) {
  return std::make_unique<ZstdSource>(std::move(file));
}

}  // namespace quire
