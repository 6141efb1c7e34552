// Samples tokens from logits; quire generate and quire serve share it.
#pragma once

#include <cstdint>
#include <span>

#include "data/tokenizers/tokenizer.h"

namespace quire {

struct SamplingOptions {
  int64_t length = 256;      // the largest number of tokens to generate
  double temperature = 1.0;  // 0: the most likely token
  int64_t top_k = 0;         // 0 is off
  double top_p = 1.0;        // nucleus (Holtzman et al. 2020); 1 is off
  uint64_t seed = 1;
};

// Samples one token id from logits [V]. `draw` is a uniform number in [0, 1).
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double draw);

// Returns the uniform number in [0, 1) for the token after `position` model positions.
double sampling_draw(uint64_t seed, int64_t position);

// BOS only begins a document. Where it is EOS as well, it ends one too.
void exclude_bos(std::span<float> logits, const Tokenizer& tokenizer);

}  // namespace quire
