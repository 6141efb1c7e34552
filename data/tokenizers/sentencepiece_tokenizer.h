// A SentencePiece model as tokenizer, option spm:FILE. Text is encoded unit by unit (data/sources/text_units.h).
//
// A model that keeps text (identity normalisation, no added or removed spaces, byte fallback) gives back every byte:
// what SentencePiece itself would lose goes into byte tokens. That is U+2581, which it writes for a space, and bytes
// that are not UTF-8. Newlines, on which lines are cut, are the piece "\n" or the byte token. Other models alter text;
// they are refused unless that was allowed.
#pragma once

#include <array>

#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

class SentencePieceTokenizer : public Tokenizer {
 public:
  static std::unique_ptr<Tokenizer> from_payload(const std::string& payload);
  static std::unique_ptr<Tokenizer> from_option(const std::string& argument, const TokenizerOptions& options);
  // From the bytes of a model file. Error(data) when they are none.
  explicit SentencePieceTokenizer(std::string model);

  std::string kind() const override { return "spm"; }
  int64_t vocabulary_size() const override { return vocabulary_; }
  int64_t content_size() const override { return static_cast<int64_t>(texts_.size()); }
  int32_t bos_id() const override { return bos_; }
  int32_t eos_id() const override { return eos_; }
  bool lossy() const override { return !alterations_.empty(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  size_t divisible_prefix(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string serialise() const override;

  // How the model alters text, for messages; empty when it does not.
  const std::string& alterations() const { return alterations_; }

 private:
  void encode_unit(std::string_view unit, std::vector<int32_t>& ids) const;
  void encode_exactly(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_bytes(std::string_view text, std::vector<int32_t>& ids) const;

  std::string bytes_;  // of the model file
  std::unique_ptr<SentencePieceModel> model_;
  std::vector<std::string> texts_;       // by id
  std::array<int32_t, 256> byte_ids_{};  // -1 for a byte without a piece
  std::string alterations_;
  int32_t newline_ = -1;
  int64_t vocabulary_ = 0;
  int32_t bos_ = 0;
  int32_t eos_ = 0;
};

}  // namespace quire
