#include "data/tokenizers/byte_tokenizer.h"

#include "core/check.h"

namespace quire {

std::unique_ptr<Tokenizer> ByteTokenizer::from_payload(const std::string& payload) {
  if (!payload.empty()) fail(ErrorKind::data, "byte tokenizer: stored with {} bytes it has no use for", payload.size());
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> ByteTokenizer::from_option(const std::string& argument,
                                                      const TokenizerOptions& /*options*/) {
  if (!argument.empty()) fail(ErrorKind::config, "tokenizer byte takes no argument, got \"{}\"", argument);
  return std::make_unique<ByteTokenizer>();
}

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  ids.resize(before + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[before + i] = static_cast<uint8_t>(text[i]);
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary_size()) fail(ErrorKind::data, "byte tokenizer: no token has id {}", id);
    if (id < content_size()) text += static_cast<char>(id);
  }
  return text;
}

}  // namespace quire
