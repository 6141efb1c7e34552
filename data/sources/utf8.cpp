#include "data/sources/utf8.h"

#include <utf8.h>

#include <algorithm>

namespace quire {

namespace {

enum class Sequence { complete, cut, invalid };

// Decodes the first sequence of a text that is not empty.
Sequence first_sequence(std::string_view text) {
  const char* at = text.data();
  try {
    utf8::next(at, text.data() + text.size());
    return Sequence::complete;
  } catch (const utf8::not_enough_room&) {
    return Sequence::cut;
  } catch (const utf8::exception&) {
    return Sequence::invalid;
  }
}

}  // namespace

std::optional<int64_t> Utf8Validator::feed(std::string_view chunk) {
  while (!pending_.empty() && !chunk.empty()) {
    pending_ += chunk.front();
    chunk.remove_prefix(1);
    const Sequence sequence = first_sequence(pending_);
    if (sequence == Sequence::invalid) return position_;
    if (sequence == Sequence::complete) {
      position_ += static_cast<int64_t>(pending_.size());
      pending_.clear();
    }
  }
  const char* end = chunk.data() + chunk.size();
  const char* stop = utf8::find_invalid(chunk.data(), end);
  position_ += stop - chunk.data();
  if (stop == end) return std::nullopt;
  pending_.assign(stop, end);
  if (first_sequence(pending_) == Sequence::invalid) return position_;
  return std::nullopt;
}

std::optional<int64_t> Utf8Validator::finish() const {
  if (pending_.empty()) return std::nullopt;
  return position_;
}

size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    const size_t length = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace quire
