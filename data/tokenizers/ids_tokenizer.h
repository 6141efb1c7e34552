// Token ids as text, for models whose tokenizer is elsewhere or does not exist: "5 17 3" is three tokens.
#pragma once

#include "data/tokenizers/tokenizer.h"

namespace quire {

class IdsTokenizer : public Tokenizer {
 public:
  // The ids are 0, ..., vocabulary - 1. BOS and EOS, which may be equal, cannot be written as text.
  IdsTokenizer(int64_t vocabulary, int32_t bos, int32_t eos);
  // The payload and the argument are "VOCABULARY:BOS:EOS".
  static std::unique_ptr<Tokenizer> from_payload(const std::string& payload);
  static std::unique_ptr<Tokenizer> from_option(const std::string& argument, const TokenizerOptions& options);

  std::string kind() const override { return "ids"; }
  int64_t vocabulary_size() const override { return vocabulary_; }
  int64_t content_size() const override { return vocabulary_; }
  int32_t bos_id() const override { return bos_; }
  int32_t eos_id() const override { return eos_; }
  bool lossy() const override { return true; }  // spaces and leading zeros are lost
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  size_t divisible_prefix(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string serialise() const override;

 private:
  int64_t vocabulary_;
  int32_t bos_;
  int32_t eos_;
};

}  // namespace quire
