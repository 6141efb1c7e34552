#include "data/tokenizers/sentencepiece_spec.h"

#include <cstdint>

#include "core/check.h"

namespace quire {

namespace {

// Walks the fields of a message.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;     // value of an integer
    std::string_view text;  // bytes of a string or a message
  };
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t key = integer();
    field = {.number = key >> 3, .value = 0, .text = {}};
    switch (key & 7U) {
      case 0:
        field.value = integer();
        return true;
      case 1:
        take(8);
        return true;
      case 2:
        field.text = take(integer());
        return true;
      case 5:
        take(4);
        return true;
      default:
        fail_damaged();
    }
  }

 private:
  [[noreturn]] static void fail_damaged() { fail(ErrorKind::data, "not a SentencePiece model, or a damaged one"); }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) fail_damaged();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  // Reads a varint: seven bits per byte, lowest first; the highest bit says that more follow.
  uint64_t integer() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1).front());
      value |= uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    fail_damaged();
  }

  std::string_view rest_;
};

constexpr uint64_t kNormalizerSpec = 3;  // field number in ModelProto
constexpr uint64_t kName = 1;            // field number in NormalizerSpec
constexpr uint64_t kRules = 2;
constexpr uint64_t kAddsPrefix = 3;
constexpr uint64_t kRemovesWhitespace = 4;

}  // namespace

SentencePieceSpec read_sentencepiece_spec(std::string_view model) {
  SentencePieceSpec spec;
  Message fields(model);
  for (Message::Field field; fields.next(field);) {
    if (field.number != kNormalizerSpec) continue;
    Message normalizer(field.text);
    for (Message::Field part; normalizer.next(part);) {
      if (part.number == kName) spec.normalization = std::string(part.text);
      if (part.number == kRules) spec.has_rules = !part.text.empty();
      if (part.number == kAddsPrefix) spec.adds_prefix = part.value != 0;
      if (part.number == kRemovesWhitespace) spec.removes_whitespace = part.value != 0;
    }
  }
  return spec;
}

}  // namespace quire
