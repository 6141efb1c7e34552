// Puts a model's own tokens between those of the text, in every batch that is read: training, evaluation, generation
// and measurement.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/batch.h"
#include "core/insertion.h"

namespace quire {

class Inserter {
 public:
  // The vocabulary is the tokenizer's; inserted ids follow it.
  Inserter(const Insertion& insertion, int64_t vocabulary);
  const Insertion& insertion() const { return insertion_; }

  // How many tokens of the text a run of `count` positions has, the first of which stands at `phase` for the insertion.
  int64_t tokens(int64_t phase, int64_t count) const;
  // Such a run begins at a cell of the batch, where tokens, targets, loss_mask and recalled have its tokens without
  // gaps: each moves to its position, and inserted tokens fill the gaps.
  void spread(Batch& batch, int64_t cell, int64_t phase, int64_t count) const;
  // Error(data) for an id that is not the tokenizer's: the model would take it for an inserted one. `where` names the
  // text in the message.
  void check(std::span<const int32_t> ids, std::string_view where) const;

 private:
  Insertion insertion_;
  int64_t vocabulary_;
};

}  // namespace quire
