// Puts a model's own tokens between those of the text, in every batch: training, evaluation, generation and
// measurement.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/batch.h"
#include "core/insertion.h"

namespace quire {

// The target of a position, with its marks.
struct MarkedTarget {
  int32_t id = 0;
  bool counted = false;
  bool recalled = false;
};
void set_target(Batch& batch, size_t cell, const MarkedTarget& target);

class Inserter {
 public:
  // The vocabulary is the tokenizer's; inserted ids follow it.
  Inserter(const Insertion& insertion, int64_t vocabulary);
  const Insertion& insertion() const { return insertion_; }

  // Returns the number of text tokens among `count` positions. `phase` is the position of the first one as Insertion
  // counts it.
  int64_t tokens(int64_t phase, int64_t count) const;
  // Inserts tokens into `count` positions that begin at a cell of the batch. Before the call the text tokens (with
  // their targets and marks) stand there without gaps; each moves to its position, and inserted tokens fill the gaps.
  // Where inserted tokens are predicted, each inserted token gets the target of the token before it (`before` for the
  // first position), and that token then predicts the inserted one, if its own target counted.
  void spread(Batch& batch, int64_t cell, int64_t phase, int64_t count, const MarkedTarget& before = {}) const;
  // Throws Error(data) for an id beyond the tokenizer's vocabulary, which the model would take for an inserted token.
  // `where` names the text in the message.
  void check(std::span<const int32_t> ids, std::string_view where) const;

 private:
  Insertion insertion_;
  int64_t vocabulary_;
};

}  // namespace quire
