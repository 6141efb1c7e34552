#include "data/sources/compressed_source.h"

#include "core/check.h"

namespace quire {

namespace {

constexpr size_t kWindow = size_t{1} << 18;

}  // namespace

CompressedSource::CompressedSource(File file, std::string format)
    : file_(std::move(file)), format_(std::move(format)), window_(kWindow) {}

void CompressedSource::fail_damaged(const std::string& reason) const {
  fail(ErrorKind::data, "{}: damaged {} data after byte {}: {}; copy or download the file again", file_.path().string(),
       format_, consumed(), reason);
}

void CompressedSource::fail_without_memory() const {
  fail(ErrorKind::memory, "{}: no memory for the window of its {} data, which takes up to 2 GiB with zstd --long=31",
       file_.path().string(), format_);
}

bool CompressedSource::fill() {
  begin_of_window_ += static_cast<int64_t>(filled_);
  used_ = 0;
  filled_ = file_.read(std::as_writable_bytes(std::span(window_)));
  return filled_ > 0;
}

size_t CompressedSource::read(std::span<char> buffer) {
  size_t made = 0;
  while (made < buffer.size()) {
    // A decompressor may keep bytes back when the buffer was full, so it is called before the file is read.
    const Progress progress =
        decompress(std::span<const char>(window_).subspan(used_, filled_ - used_), buffer.subspan(made));
    used_ += progress.taken;
    made += progress.made;
    complete_ = progress.complete;
    if (progress.taken > 0 || progress.made > 0) continue;
    if (used_ < filled_) fail_damaged("it cannot be decompressed");
    if (fill()) continue;
    if (complete_) break;
    fail(ErrorKind::data,
         "{}: ends early: its {} data goes on after byte {}, the last; copy or download the file again",
         file_.path().string(), format_, consumed());
  }
  return made;
}

}  // namespace quire
