// BPE tokenizers of others, options hf:, bpe: and tiktoken:. All are stored as the text of a tokenizer.json, whose ids
// are those of the package `tokenizers` (Hugging Face).
//
// In documents special tokens are text; added tokens that are not special are always found. Bytes that are not UTF-8
// are neither letters nor spaces for patterns, and each becomes an id of its own.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>

#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/bpe_model.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/text_normalizer.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

class BpeTokenizer : public Tokenizer {
 public:
  // The largest document, in bytes, that is encoded as a whole where no cut keeps its ids.
  static constexpr size_t kLongestWhole = size_t{1} << 28;

  static std::unique_ptr<Tokenizer> from_payload(const std::string& payload);
  // Takes the text of a tokenizer.json; BOS and EOS may be one id. Throws Error(data) for a file that quire cannot use.
  BpeTokenizer(std::string json, int32_t bos, int32_t eos);
  ~BpeTokenizer() override;

  std::string kind() const override { return "hf"; }
  int64_t vocabulary_size() const override { return spec_.vocabulary; }
  int64_t content_size() const override { return spec_.vocabulary; }
  int32_t bos_id() const override { return bos_; }
  int32_t eos_id() const override { return eos_; }
  bool lossy() const override { return !alterations_.empty(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_rest(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_with_specials(std::string_view text, std::vector<int32_t>& ids) const override;
  size_t divisible_prefix(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string decode_with_specials(std::span<const int32_t> ids) const override;
  std::string serialise() const override;

  // Describes how the tokenizer alters text, for messages; empty when it does not.
  const std::string& alterations() const { return alterations_; }
  // Returns the text of a tokenizer.json.
  const std::string& json() const { return json_; }
  // Passes the words of a text to `words`; for training and tests.
  void cut(std::string_view text, PreTokenizer::Words& words) const;

 private:
  struct Scratch;
  struct Encoding;
  class Lease;

  void encode_all(std::string_view text, const Encoding& how) const;
  void encode_section(std::string_view text, bool is_first, const Encoding& how) const;
  void add_alteration(bool it_is, const std::string& how);
  void find_alterations();
  void require_unreachable(int32_t id, const char* name) const;
  void find_cutting();
  void find_word_mark();
  void fill_texts();
  bool cuts_between(std::string_view text, size_t at) const;
  size_t settled_prefix(std::string_view text) const;
  const std::string& text_of(int32_t id) const;

  std::string json_;
  BpeSpec spec_;
  int32_t bos_ = 0;
  int32_t eos_ = 0;
  TextNormalizer normalizer_;
  AddedTokenFinder raw_tokens_;         // looked for in the text
  AddedTokenFinder normalized_tokens_;  // looked for in normalised text
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  PreTokenizer::Cutting cutting_ = PreTokenizer::Cutting::nowhere;
  bool settles_ = false;            // settled() of the pre-tokenizer may cut a text
  size_t longest_added_ = 0;        // bytes of the longest token that is found in documents
  std::string word_mark_;           // a word may be cut in front of it; empty: nowhere
  std::vector<std::string> texts_;  // by id
  std::string alterations_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // scratch of threads that have ended their work
};

}  // namespace quire
