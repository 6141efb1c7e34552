// What a step reads where there is no corpus.
#pragma once

#include "core/batch.h"
#include "core/insertion.h"
#include "trainers/run/config.h"

namespace quire {

// Token ids of the model when nothing is read: data.vocabulary, or what the corpus has when it is there, or 258
// (bytes).
int64_t expected_vocabulary(const RunConfig& config);

// Random tokens with what the model inserts; the documents of all rows begin at step 0 and go on for ever.
Batch random_batch(const DataConfig& data, int64_t vocabulary, const Insertion& insertion, int64_t step);

}  // namespace quire
