#include "data/tokenizer.h"

#include <array>

#include "core/check.h"
#include "data/byte_tokenizer.h"

namespace quire {

namespace {

using Build = std::unique_ptr<Tokenizer> (*)(const std::string& text);

struct Entry {
  const char* kind;
  Build from_payload;  // what follows the kind in serialise()
  Build from_option;   // what follows the colon in an option
};

// One line per tokenizer.
constexpr std::array kTokenizers{
    Entry{"byte", ByteTokenizer::from_payload, ByteTokenizer::from_option},
};

const Entry& find_entry(const std::string& kind) {
  std::string known;
  for (const Entry& entry : kTokenizers) {
    if (kind == entry.kind) return entry;
    if (!known.empty()) known += ", ";
    known += entry.kind;
  }
  fail(ErrorKind::config, "unknown tokenizer \"{}\"; there is: {}", kind, known);
}

// Splits at the first separator; without one the second part is empty.
std::pair<std::string, std::string> cut(const std::string& text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace

Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& serialised) {
  const auto [kind, payload] = cut(serialised, '\n');
  return find_entry(kind).from_payload(payload);
}

std::unique_ptr<Tokenizer> parse_tokenizer_option(const std::string& option) {
  const auto [kind, argument] = cut(option, ':');
  return find_entry(kind).from_option(argument);
}

}  // namespace quire
