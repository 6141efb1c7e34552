#include "data/tokenizers/make_tokenizer.h"

#include <array>

#include "core/check.h"
#include "data/tokenizers/bpe_files.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "data/tokenizers/ids_tokenizer.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"

namespace quire {

namespace {

struct Entry {
  const char* kind;
  // Makes a tokenizer from the data after the kind in serialise().
  std::unique_ptr<Tokenizer> (*from_payload)(const std::string& payload);
  // Makes a tokenizer from the text after the colon in an option.
  std::unique_ptr<Tokenizer> (*from_option)(const std::string& argument, const TokenizerOptions& options);
};

// One line per tokenizer. Those of other programs are all stored as hf.
constexpr std::array kTokenizers{
    Entry{"byte", ByteTokenizer::from_payload, ByteTokenizer::from_option},
    Entry{"ids", IdsTokenizer::from_payload, IdsTokenizer::from_option},
    Entry{"hf", BpeTokenizer::from_payload, tokenizer_from_json},
    Entry{"bpe", BpeTokenizer::from_payload, tokenizer_from_merges},
    Entry{"tiktoken", BpeTokenizer::from_payload, tokenizer_from_ranks},
    Entry{"spm", SentencePieceTokenizer::from_payload, SentencePieceTokenizer::from_option},
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

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& serialised, const std::string& where, ErrorKind kind) {
  try {
    const auto [name, payload] = cut(serialised, '\n');
    return find_entry(name).from_payload(payload);
  } catch (const Error& error) {
    fail(kind, "{}: {}", where, error.what());
  }
}

std::unique_ptr<Tokenizer> parse_tokenizer_option(const std::string& option, const TokenizerOptions& options) {
  const auto [kind, argument] = cut(option, ':');
  return find_entry(kind).from_option(argument, options);
}

}  // namespace quire
