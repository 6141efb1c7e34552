#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <utf8.h>

#include <algorithm>

#include "core/check.h"
#include "core/files/file_io.h"
#include "data/sources/text_units.h"
#include "data/tokenizers/sentencepiece_spec.h"

namespace quire {

namespace {

using PieceKind = SentencePieceModel::PieceKind;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr const char* kUnknownText = "\xEF\xBF\xBD";     // U+FFFD
constexpr const char* kHexadecimal = "0123456789abcdef";

std::string to_hexadecimal(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    text += kHexadecimal[byte >> 4];
    text += kHexadecimal[byte & 15];
  }
  return text;
}

std::string from_hexadecimal(const std::string& text) {
  const auto digit = [](char c) {
    const char* at = std::find(kHexadecimal, kHexadecimal + 16, c);
    if (at == kHexadecimal + 16) fail(ErrorKind::data, "the stored SentencePiece model is damaged");
    return static_cast<unsigned>(at - kHexadecimal);
  };
  if (text.size() % 2 != 0) fail(ErrorKind::data, "the stored SentencePiece model is damaged");
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return bytes;
}

std::string with_spaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    const size_t mark = piece.find(kSpaceMark);
    text += piece.substr(0, mark);
    if (mark == std::string_view::npos) break;
    text += ' ';
    piece.remove_prefix(mark + kSpaceMark.size());
  }
  return text;
}

void require_short(std::string_view text) {
  if (text.size() <= SentencePieceTokenizer::kLongestWhole) return;
  fail(
      ErrorKind::data,
      "tokenizer spm: a document has more than {} bytes, and a model that alters text encodes it as a whole; split it, "
      "or use a tokenizer that gives back every byte",
      SentencePieceTokenizer::kLongestWhole);
}

// Parses "<0x0A>".
uint8_t byte_of(const std::string& piece) {
  return static_cast<uint8_t>(std::stoul(piece.substr(3, 2), nullptr, 16));
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model)
    : bytes_(std::move(model)), model_(SentencePieceModel::parse(bytes_)) {
  const int32_t pieces = model_->pieces();
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < pieces; ++id) {
    const PieceKind kind = model_->kind(id);
    std::string text;
    if (kind == PieceKind::text) text = with_spaces(model_->piece(id));
    if (kind == PieceKind::unknown) text = kUnknownText;
    if (kind == PieceKind::byte) {
      const uint8_t byte = byte_of(model_->piece(id));
      byte_ids_[byte] = id;
      text = static_cast<char>(byte);
    }
    texts_.push_back(std::move(text));
  }
  const std::optional<int32_t> newline = model_->find("\n");
  newline_ = newline && model_->kind(*newline) == PieceKind::text ? *newline : byte_ids_['\n'];

  vocabulary_ = pieces;
  const std::optional<int32_t> bos = model_->bos();
  const std::optional<int32_t> eos = model_->eos();
  bos_ = bos ? *bos : static_cast<int32_t>(vocabulary_++);
  eos_ = eos && eos != bos ? *eos : static_cast<int32_t>(vocabulary_++);

  const SentencePieceSpec spec = read_sentencepiece_spec(bytes_);
  const auto altered = [this](bool it_is, const std::string& how) {
    if (!it_is) return;
    if (!alterations_.empty()) alterations_ += ", ";
    alterations_ += how;
  };
  altered(spec.has_rules, fmt::format("it normalises ({})", spec.normalization));
  altered(spec.adds_prefix, "it adds a space in front");
  altered(spec.removes_whitespace, "it removes spaces");
  altered(std::find(byte_ids_.begin(), byte_ids_.end(), -1) != byte_ids_.end(), "it has no byte fallback");
}

std::unique_ptr<Tokenizer> SentencePieceTokenizer::from_payload(const std::string& payload) {
  return std::make_unique<SentencePieceTokenizer>(from_hexadecimal(payload));
}

std::unique_ptr<Tokenizer> SentencePieceTokenizer::from_option(const std::string& argument,
                                                               const TokenizerOptions& options) {
  if (argument.empty()) fail(ErrorKind::config, "tokenizer spm: name a model file, as in spm:FILE");
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(argument, ignored)) {
    fail(ErrorKind::data, "{}: no such file; quire tokenizer train makes SentencePiece models", argument);
  }
  std::unique_ptr<SentencePieceTokenizer> tokenizer;
  try {
    tokenizer = std::make_unique<SentencePieceTokenizer>(
        read_text_file(argument, {.kind = ErrorKind::data, .max_bytes = int64_t{1} << 30}));
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", argument, error.what());
  }
  if (tokenizer->lossy() && !options.allow_lossy) {
    fail(ErrorKind::config,
         "{}: this model alters text: {}; train one with quire tokenizer train, or accept that with --lossy-tokenizer",
         argument, tokenizer->alterations());
  }
  return tokenizer;
}

size_t SentencePieceTokenizer::divisible_prefix(std::string_view text) const {
  if (!lossy()) return whole_units(text);
  require_short(text);
  return 0;
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (lossy()) {
    require_short(text);
    if (!text.empty()) model_->encode(text, ids);
    return;
  }
  while (!text.empty()) {
    const size_t count = first_unit(text);
    encode_unit(text.substr(0, count), ids);
    text.remove_prefix(count);
  }
}

void SentencePieceTokenizer::encode_unit(std::string_view unit, std::vector<int32_t>& ids) const {
  const bool ends_line = unit.back() == '\n' && newline_ >= 0;
  if (ends_line) unit.remove_suffix(1);
  encode_exactly(unit, ids);
  if (ends_line) ids.push_back(newline_);
}

void SentencePieceTokenizer::encode_exactly(std::string_view text, std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const char* invalid = utf8::find_invalid(text.data(), text.data() + text.size());
    const std::string_view valid = text.substr(0, static_cast<size_t>(invalid - text.data()));
    const std::string_view exact = valid.substr(0, valid.find(kSpaceMark));
    if (!exact.empty()) {
      const size_t before = ids.size();
      model_->encode(exact, ids);
      restore_spaces(ids, before);
      if (const std::string back = decode(std::span(ids).subspan(before)); back != exact) {
        fail(ErrorKind::data, "tokenizer spm: the model turns \"{}\" into \"{}\"; use another model", exact, back);
      }
      text.remove_prefix(exact.size());
      continue;
    }
    const size_t count = valid.empty() ? 1 : kSpaceMark.size();
    encode_bytes(text.substr(0, count), ids);
    text.remove_prefix(count);
  }
}

// Restores spaces: a model that has no piece for the space (trained on text without spaces) makes byte tokens of the
// mark that stands for it. The text itself contained no mark.
void SentencePieceTokenizer::restore_spaces(std::vector<int32_t>& ids, size_t begin) const {
  const auto is_mark = [&](size_t at) {
    for (size_t i = 0; i < kSpaceMark.size(); ++i) {
      if (ids[at + i] != byte_ids_[static_cast<uint8_t>(kSpaceMark[i])]) return false;
    }
    return true;
  };
  size_t end = begin;
  for (size_t at = begin; at < ids.size();) {
    const bool mark = at + kSpaceMark.size() <= ids.size() && is_mark(at);
    ids[end++] = mark ? byte_ids_[' '] : ids[at];
    at += mark ? kSpaceMark.size() : 1;
  }
  ids.resize(end);
}

void SentencePieceTokenizer::encode_bytes(std::string_view text, std::vector<int32_t>& ids) const {
  for (const char c : text) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_) fail(ErrorKind::data, "tokenizer spm: no token has id {}", id);
    // Ids of BOS and EOS may lie beyond the model's pieces.
    if (id < content_size()) text += texts_[static_cast<size_t>(id)];
  }
  return text;
}

std::string SentencePieceTokenizer::serialise() const {
  return "spm\n" + to_hexadecimal(bytes_);
}

}  // namespace quire
