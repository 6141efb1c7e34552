#include "data/corpus/token_spool.h"

#include <bit>
#include <cstring>

#include "core/check.h"

namespace quire {

static_assert(std::endian::native == std::endian::little, "token files are little endian and mapped as they are");

namespace {

constexpr size_t kBuffer = size_t{1} << 20;

// The type follows from the tokenizer, not from the ids that occur, so that corpora of one tokenizer have the same
// type.
DType narrowest_type(int64_t content_size) {
  if (content_size <= 256) return DType::u8;
  return content_size <= 65536 ? DType::u16 : DType::i32;
}

template <typename Stored>
void append_as(std::span<const int32_t> ids, std::vector<std::byte>& buffer) {
  size_t at = buffer.size();
  buffer.resize(at + ids.size() * sizeof(Stored));
  for (const int32_t id : ids) {
    const auto stored = static_cast<Stored>(id);
    std::memcpy(&buffer[at], &stored, sizeof(Stored));
    at += sizeof(Stored);
  }
}

}  // namespace

TokenSpool::TokenSpool(std::filesystem::path folder, int64_t content_size)
    : folder_(std::move(folder)),
      content_size_(content_size),
      dtype_(narrowest_type(content_size)),
      tokens_file_(File::scratch(folder_)) {}

void TokenSpool::append(std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    QUIRE_CHECK(id >= 0 && id < content_size_, "corpus writer: the tokenizer gave id {} of {}", id, content_size_);
  }
  if (dtype_ == DType::u8) append_as<uint8_t>(ids, buffer_);
  if (dtype_ == DType::u16) append_as<uint16_t>(ids, buffer_);
  if (dtype_ == DType::i32) append_as<int32_t>(ids, buffer_);
  tokens_ += static_cast<int64_t>(ids.size());
  if (buffer_.size() >= kBuffer) flush();
}

void TokenSpool::append_marks(std::span<const uint8_t> marks) {
  if (!marks_file_) marks_file_ = File::scratch(folder_);
  marks_file_->write(std::as_bytes(marks));
  marks_ += static_cast<int64_t>(marks.size());
}

void TokenSpool::flush() {
  tokens_file_.write(buffer_);
  buffer_.clear();
}

void TokenSpool::read(int64_t begin, std::span<std::byte> into) const {
  QUIRE_CHECK(tokens_file_.read_at(begin, into) == into.size(), "corpus writer: the scratch file is too short");
}

void TokenSpool::read_marks(int64_t first, std::span<std::byte> into) const {
  QUIRE_CHECK(marks_file_->read_at(first, into) == into.size(),
              "corpus writer: the scratch file of marks is too short");
}

}  // namespace quire
