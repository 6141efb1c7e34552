// Generates text with a model, token by token. Carried state gives access to text of any length.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/batches/inserter.h"
#include "data/tokenizers/tokenizer.h"
#include "layers/state/state_pool.h"
#include "trainers/evaluation/sampling.h"
#include "trainers/setup/model.h"

namespace quire {

class Generator {
 public:
  // Makes a generator that has read nothing yet.
  Generator(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine);
  // Makes a generator and reads BOS and the prompt.
  Generator(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine,
            std::string_view prompt);

  // The state after what was read so far, to which the generator can return any number of times.
  struct Mark {
    std::vector<NamedTensor> counts;
    std::vector<std::byte> row;
    std::vector<float> logits;
    int64_t position = 0;
  };
  Mark mark() const;
  void go_back(const Mark& mark);

  // Drops the state and begins a new document with BOS.
  void begin_document();
  // Reads these tokens, in subsequences. An inserted token is read together with the token that follows it or, where
  // the model predicts from it, with the token before it. Throws Error(data) for an id beyond the tokenizer's
  // vocabulary, and Error(config) where a model with learned positions has none left.
  void read(std::span<const int32_t> ids);
  // Returns the most likely next token; ties go to the lower id, and BOS is excluded unless it is EOS as well.
  int32_t most_likely() const;

  // Returns the next token, or EOS. logits() are those of the token after everything read so far.
  int32_t next(const SamplingOptions& options);
  // Throws Error(config) unless `count` more tokens can be read.
  void require_room(int64_t count) const;
  const std::vector<float>& logits() const { return logits_; }
  int64_t position() const { return position_; }  // model positions read
  int64_t tokens() const { return inserter_.insertion().tokens_before(position_); }

 private:
  // Reads the next `count` model positions, which these tokens fill together with inserted ones.
  void read_subsequence(std::span<const int32_t> ids, int64_t count);

  const Tokenizer& tokenizer_;
  int64_t subsequence_;
  std::optional<int64_t> room_;  // tokens that can be read at all
  Network network_;
  Inserter inserter_;
  StatePool state_;
  std::vector<float> logits_;
  int64_t position_ = 0;  // model positions read
};

// Returns the continuation; each piece of it is passed to `write` as soon as it is complete UTF-8.
std::string generate(Generator& generator, const Tokenizer& tokenizer, const SamplingOptions& options,
                     const std::function<void(std::string_view)>& write);

}  // namespace quire
