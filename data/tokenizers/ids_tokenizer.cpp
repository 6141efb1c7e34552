#include "data/tokenizers/ids_tokenizer.h"

#include <array>
#include <charconv>

#include "core/check.h"

namespace quire {

namespace {

constexpr std::string_view kSpaces = " \t\r\n";

std::unique_ptr<Tokenizer> parse(const std::string& text, ErrorKind kind) {
  std::array<int64_t, 3> numbers{};
  const char* at = text.data();
  const char* end = at + text.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto read = std::from_chars(at, end, numbers[i]);
    const bool last = i + 1 == numbers.size();
    if (read.ec != std::errc{} || (last ? read.ptr != end : read.ptr == end || *read.ptr != ':')) {
      fail(kind, "tokenizer ids: \"{}\" is not VOCABULARY:BOS:EOS, as in ids:32000:1:2", text);
    }
    at = read.ptr + 1;
  }
  const auto [vocabulary, bos, eos] = numbers;
  if (vocabulary < 2 || vocabulary > (int64_t{1} << 30) || bos < 0 || bos >= vocabulary || eos < 0 ||
      eos >= vocabulary) {
    fail(kind, "tokenizer ids: BOS {} and EOS {} must be below the {} ids", bos, eos, vocabulary);
  }
  return std::make_unique<IdsTokenizer>(vocabulary, static_cast<int32_t>(bos), static_cast<int32_t>(eos));
}

}  // namespace

IdsTokenizer::IdsTokenizer(int64_t vocabulary, int32_t bos, int32_t eos)
    : vocabulary_(vocabulary), bos_(bos), eos_(eos) {}

std::unique_ptr<Tokenizer> IdsTokenizer::from_payload(const std::string& payload) {
  return parse(payload, ErrorKind::data);
}

std::unique_ptr<Tokenizer> IdsTokenizer::from_option(const std::string& argument, const TokenizerOptions& options) {
  if (!options.allow_lossy) {
    fail(ErrorKind::config,
         "tokenizer ids alters text: it keeps numbers and not the spaces between them; give "
         "--lossy-tokenizer to accept that");
  }
  return parse(argument, ErrorKind::config);
}

void IdsTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  for (size_t at = text.find_first_not_of(kSpaces); at != std::string_view::npos;
       at = text.find_first_not_of(kSpaces, at)) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    int32_t id = -1;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), id);
    if (read.ec != std::errc{} || read.ptr != word.data() + word.size() || id < 0 || id >= vocabulary_) {
      fail(ErrorKind::data, "tokenizer ids: \"{}\" is no token id below {}", word, vocabulary_);
    }
    if (id == bos_ || id == eos_) {
      fail(ErrorKind::data, "tokenizer ids: {} is BOS or EOS, which begin and end a document and cannot be in its text",
           id);
    }
    ids.push_back(id);
    at = end;
  }
}

size_t IdsTokenizer::divisible_prefix(std::string_view text) const {
  const size_t last = text.find_last_of(kSpaces);
  return last == std::string_view::npos ? 0 : last + 1;
}

std::string IdsTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_) fail(ErrorKind::data, "tokenizer ids: no token has id {}", id);
    if (id != bos_ && id != eos_) text += fmt::format("{} ", id);
  }
  return text;
}

std::string IdsTokenizer::serialise() const {
  return fmt::format("ids\n{}:{}:{}", vocabulary_, bos_, eos_);
}

}  // namespace quire
