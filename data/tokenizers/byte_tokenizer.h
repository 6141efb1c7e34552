// Bytes as tokens: ids 0..255 are the bytes, 256 is BOS, 257 is EOS.
#pragma once

#include "data/tokenizers/tokenizer.h"

namespace quire {

class ByteTokenizer : public Tokenizer {
 public:
  static std::unique_ptr<Tokenizer> from_payload(const std::string& payload);
  static std::unique_ptr<Tokenizer> from_option(const std::string& argument, const TokenizerOptions& options);

  std::string kind() const override { return "byte"; }
  int64_t vocabulary_size() const override { return 258; }
  int64_t content_size() const override { return 256; }
  int32_t bos_id() const override { return 256; }
  int32_t eos_id() const override { return 257; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  size_t divisible_prefix(std::string_view text) const override { return text.size(); }
  std::string decode(std::span<const int32_t> ids) const override;
  std::string serialise() const override { return "byte\n"; }
};

}  // namespace quire
