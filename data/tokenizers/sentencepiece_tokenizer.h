// A SentencePiece model as tokenizer, option spm:FILE.
//
// A model that keeps text (identity normalisation, no added or removed spaces, byte fallback) gives back every byte:
// what SentencePiece itself would lose goes into byte tokens. That is U+2581, which it writes for a space, spaces where
// no piece holds one, and bytes that are not UTF-8. Newlines, on which lines are cut, are the piece "\n" or the byte
// token. Text is encoded unit by unit (data/sources/text_units.h).
//
// Other models alter text; they are refused unless that was allowed. Their ids are SentencePiece's own of the whole
// document: its normalisation looks at all of it, and a unigram model decides by sums of the whole text in single
// precision, so that no cut would give the same ids.
#pragma once

#include <array>

#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

class SentencePieceTokenizer : public Tokenizer {
 public:
  // The largest document, in bytes, that is encoded as a whole, which takes about 70 times as much memory.
  static constexpr size_t kLongestWhole = size_t{1} << 28;

  static std::unique_ptr<Tokenizer> from_payload(const std::string& payload);
  static std::unique_ptr<Tokenizer> from_option(const std::string& argument, const TokenizerOptions& options);
  // Takes the bytes of a model file. Throws Error(data) when they are no model.
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

  // Describes how the model alters text, for messages; empty when it does not.
  const std::string& alterations() const { return alterations_; }

 private:
  void encode_unit(std::string_view unit, std::vector<int32_t>& ids) const;
  void encode_exactly(std::string_view text, std::vector<int32_t>& ids) const;
  void restore_spaces(std::vector<int32_t>& ids, size_t begin) const;
  void encode_bytes(std::string_view text, std::vector<int32_t>& ids) const;

  std::string bytes_;  // bytes of the model file
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
