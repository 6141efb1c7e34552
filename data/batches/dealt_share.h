// Counts how much rows read in a number of steps, without making the steps.
#pragma once

#include "data/batches/batch_options.h"
#include "data/corpus/documents.h"

namespace quire {

struct DealtShare {
  int64_t tokens = 0;     // with BOS, without inserted ones and padding
  int64_t documents = 0;  // documents that rows begin
  bool exact = true;      // false: more than `max_documents` documents, so the rest is in proportion to them
};

// Returns what Dealing, whose rules these are, deals in `steps` steps from the beginning. The list is read endlessly.
DealtShare dealt_share(const ReadingList& list, const BatchOptions& options, int64_t steps,
                       int64_t max_documents = int64_t{1} << 20);

}  // namespace quire
