// Tokenizers: text to ids and back. Corpora and checkpoints hold the tokenizer itself, as text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class Tokenizer {
 public:
  virtual ~Tokenizer();
  virtual std::string kind() const = 0;         // the name in the registry
  virtual int64_t vocabulary_size() const = 0;  // with BOS and EOS
  // The ids that encode() gives are below this, which decides the width of stored tokens.
  virtual int64_t content_size() const = 0;
  virtual int32_t bos_id() const = 0;
  virtual int32_t eos_id() const = 0;
  // True when decode() may return another text than encode() was given. Other tokenizers return every byte.
  virtual bool lossy() const { return false; }
  // Appends the ids of the text, without BOS and EOS. No text is ever encoded as these two.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // For text that arrives in pieces: the number of bytes at its beginning that can be encoded by themselves, so that
  // encoding piece by piece gives the ids of the whole text. The rest is at most a few kilobytes, unless the tokenizer
  // is lossy.
  virtual size_t divisible_prefix(std::string_view text) const = 0;
  // BOS and EOS have no text. An id beyond the vocabulary is Error(data).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // The text from which make_tokenizer() makes an equal tokenizer: "kind\n", then the data of the kind.
  virtual std::string serialise() const = 0;
};

struct TokenizerOptions {
  bool allow_lossy = false;
};

}  // namespace quire
