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
  // encode() gives ids below this: it decides how wide stored tokens are.
  virtual int64_t content_size() const = 0;
  virtual int32_t bos_id() const = 0;
  virtual int32_t eos_id() const = 0;
  // Appends the ids of the text, without BOS and EOS.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // BOS and EOS have no text. An id beyond the vocabulary is Error(data).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // What make_tokenizer() needs to build an equal one: "kind\n", then what the kind wants.
  virtual std::string serialise() const = 0;
};

// From serialise(). An unknown kind is Error(config) that names the known ones.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& serialised);

// From a --tokenizer option, "KIND" or "KIND:ARGUMENT".
std::unique_ptr<Tokenizer> parse_tokenizer_option(const std::string& option);

}  // namespace quire
