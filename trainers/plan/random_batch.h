// Batches of random tokens, for steps without a corpus.
#pragma once

#include "core/batch.h"
#include "core/insertion.h"
#include "trainers/setup/config.h"

namespace quire {

// Returns the number of token ids: data.vocabulary, else that of the corpus when it exists, else 258 (bytes).
int64_t expected_vocabulary(const RunConfig& config);

// Warns on stderr that the number is a guess, when data.corpus names a file that does not exist.
void tell_guessed_vocabulary(const RunConfig& config);

// Returns random tokens, with the tokens that the model inserts. In every row a document begins at step 0 and never
// ends.
Batch random_batch(const DataConfig& data, int64_t vocabulary, const Insertion& insertion, int64_t step);

}  // namespace quire
