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
  // Appends the ids of text behind a divisible prefix: what a tokenizer writes at the beginning of a text, such as a
  // space, is left out.
  virtual void encode_rest(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids); }
  // Appends the ids of a text in which the names of special tokens, such as "<|endoftext|>", become these tokens. A
  // tokenizer whose special tokens have no names encodes as encode() does.
  virtual void encode_with_specials(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids); }
  // For text that arrives in pieces: returns the number of bytes at its beginning that can be encoded alone, so that
  // encoding the first piece by encode() and the others by encode_rest() gives the ids of the whole text. The rest is
  // at most a few kilobytes, unless the tokenizer is lossy or no place in so much text is one where ids may be cut.
  virtual size_t divisible_prefix(std::string_view text) const = 0;
  // Returns the text of the ids. BOS and EOS have no text; that of other ids does not depend on their neighbours.
  // Throws Error(data) for an id beyond the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // Returns the text of the ids of a whole text, with the names of special tokens, and without a space that the
  // tokenizer writes at the beginning.
  virtual std::string decode_with_specials(std::span<const int32_t> ids) const { return decode(ids); }
  // Returns the text from which make_tokenizer() makes an equal tokenizer: "kind\n", then the data of the kind.
  virtual std::string serialise() const = 0;
};

struct TokenizerOptions {
  bool allow_lossy = false;
};

}  // namespace quire
