#include "data/batches/inserter.h"

#include "core/check.h"

namespace quire {

Inserter::Inserter(const Insertion& insertion, int64_t vocabulary) : insertion_(insertion), vocabulary_(vocabulary) {
  QUIRE_CHECK(insertion.period > 0 && insertion.ids >= 0 && vocabulary > 0,
              "inserter: {} ids after every {} tokens, vocabulary {}", insertion.ids, insertion.period, vocabulary);
}

int64_t Inserter::tokens(int64_t phase, int64_t count) const {
  return insertion_.tokens_before(phase + count) - insertion_.tokens_before(phase);
}

void Inserter::spread(Batch& batch, int64_t cell, int64_t phase, int64_t count) const {
  if (!insertion_.any()) return;
  const bool recalled = !batch.recalled.empty();
  // From the end: no token is overwritten before it has moved.
  auto from = static_cast<size_t>(cell + tokens(phase, count));
  for (int64_t i = count - 1; i >= 0; --i) {
    const auto to = static_cast<size_t>(cell + i);
    if (insertion_.is_inserted(phase + i)) {
      batch.tokens[to] = static_cast<int32_t>(vocabulary_ + insertion_.id_at(phase + i));
      batch.targets[to] = 0;
      batch.loss_mask[to] = 0;
      if (recalled) batch.recalled[to] = 0;
      batch.inserted[to] = 1;
      continue;
    }
    --from;
    batch.tokens[to] = batch.tokens[from];
    batch.targets[to] = batch.targets[from];
    batch.loss_mask[to] = batch.loss_mask[from];
    if (recalled) batch.recalled[to] = batch.recalled[from];
  }
}

void Inserter::check(std::span<const int32_t> ids, std::string_view where) const {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary_) continue;
    fail(ErrorKind::data, "{}: token id {} is outside the tokenizer's vocabulary of {}", where, id, vocabulary_);
  }
}

}  // namespace quire
