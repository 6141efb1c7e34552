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
  virtual int64_t vocabulary_size() const = 0;  // includes BOS and EOS
  // Returns a bound: ids from encode() are below it. It decides the width of stored tokens.
  virtual int64_t content_size() const = 0;
  virtual int32_t bos_id() const = 0;
  virtual int32_t eos_id() const = 0;
  // Returns true when decode(encode(text)) may differ from the text. Other tokenizers return every byte.
  virtual bool lossy() const { return false; }
  // Appends the ids of the text, without BOS and EOS. No text is ever encoded as these two.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // For text that arrives in pieces: returns the number of bytes at its beginning that can be encoded alone, so that
  // encoding piece by piece gives the ids of the whole text. The rest is at most a few kilobytes, unless the tokenizer
  // is lossy.
  virtual size_t divisible_prefix(std::string_view text) const = 0;
  // Returns the text of the ids. BOS and EOS have no text. Throws Error(data) for an id beyond the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // Returns the text from which make_tokenizer() makes an equal tokenizer: "kind\n", then the data of the kind.
  virtual std::string serialise() const = 0;
};

struct TokenizerOptions {
  bool allow_lossy = false;
};

}  // namespace quire
