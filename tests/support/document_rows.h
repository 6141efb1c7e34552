// Batches cut by hand from lists of documents, one list per row: every edge a mechanism meets (a document that goes on,
// ends, begins inside a row, fills a row to its last position; padding; a row that has run out) lies where a test puts
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/batch.h"
#include "core/insertion.h"
#include "data/batches/batch_options.h"

namespace quire::test {

// A document of n positions has n + 1 ids: position p reads ids[p] and predicts ids[p + 1].
using Document = std::vector<int32_t>;

// Documents with random ids below `vocabulary`; lengths[row][i] positions. Ids depend on seed, row and i only.
std::vector<std::vector<Document>> random_documents(const std::vector<std::vector<int64_t>>& lengths,
                                                    int32_t vocabulary, uint32_t seed);

// Returns one batch per step until every row has run out. When a row has several documents, they begin at multiples of
// alignment. Documents are numbered row by row.
std::vector<Batch> cut(const std::vector<std::vector<Document>>& rows, int64_t length, Pack pack,
                       int64_t alignment = 1);

// Returns the batches with inserted ids, which follow the vocabulary and are no targets, at the positions where a model
// reads them.
std::vector<Batch> with_inserted(std::vector<Batch> batches, const Insertion& insertion, int32_t vocabulary);

// Returns the batches with padding in place of all documents that `kept` does not accept.
std::vector<Batch> only(std::vector<Batch> batches, const std::function<bool(int64_t document)>& kept);

}  // namespace quire::test
