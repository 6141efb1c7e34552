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

namespace {

MarkedTarget target_of(const Batch& batch, size_t cell) {
  return {batch.targets[cell], batch.loss_mask[cell] != 0, !batch.recalled.empty() && batch.recalled[cell] != 0};
}

}  // namespace

void set_target(Batch& batch, size_t cell, const MarkedTarget& target) {
  batch.targets[cell] = target.id;
  batch.loss_mask[cell] = target.counted ? 1 : 0;
  if (!batch.recalled.empty()) batch.recalled[cell] = target.recalled ? 1 : 0;
}

void Inserter::spread(Batch& batch, int64_t cell, int64_t phase, int64_t count, const MarkedTarget& before) const {
  if (!insertion_.any()) return;
  const auto id_at = [&](int64_t position) { return static_cast<int32_t>(vocabulary_ + insertion_.id_at(position)); };
  // Tokens move from the end to the beginning, so that none is overwritten before it has moved.
  const auto begin = static_cast<size_t>(cell);
  auto from = static_cast<size_t>(cell + tokens(phase, count));
  for (int64_t i = count - 1; i >= 0; --i) {
    const auto to = static_cast<size_t>(cell + i);
    if (insertion_.is_inserted(phase + i)) {
      const MarkedTarget taken = from == begin ? before : target_of(batch, from - 1);
      set_target(batch, to, insertion_.predicts() ? taken : MarkedTarget{});
      batch.tokens[to] = id_at(phase + i);
      batch.inserted[to] = 1;
      continue;
    }
    --from;
    const MarkedTarget own = target_of(batch, from);
    const bool predicts_inserted = insertion_.predicts() && insertion_.is_inserted(phase + i + 1);
    batch.tokens[to] = batch.tokens[from];
    set_target(batch, to, !predicts_inserted ? own : MarkedTarget{.id = own.counted ? id_at(phase + i + 1) : 0});
  }
}

void Inserter::check(std::span<const int32_t> ids, std::string_view where) const {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary_) continue;
    fail(ErrorKind::data, "{}: token id {} is outside the tokenizer's vocabulary of {}", where, id, vocabulary_);
  }
}

}  // namespace quire
