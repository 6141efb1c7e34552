#include "trainers/evaluation/evaluation_batches.h"

namespace quire {

EvaluationBatches::EvaluationBatches(Corpus& corpus, const std::string& split, const BatchOptions& options,
                                     const std::optional<int64_t>& stride)
    : options_(options) {
  if (!stride) {
    documents_.emplace(corpus, split, options);
    return;
  }
  windows_.emplace(corpus.split(split).offsets(), options, *stride);
  packer_.emplace(corpus.split(split), corpus.tokenizer(), options);
  cursor_ = windows_->start();
}

std::optional<EvaluationBatch> EvaluationBatches::next() {
  if (documents_) {
    std::optional<CursoredBatch> item = documents_->next();
    if (!item) return std::nullopt;
    return EvaluationBatch{std::move(item->batch)};
  }
  if (windows_->done(cursor_)) return std::nullopt;
  const std::vector<Piece> pieces = windows_->step(cursor_);
  EvaluationBatch result{packer_->pack(pieces)};
  result.origins.resize(static_cast<size_t>(options_.last_row - options_.first_row));
  for (const Piece& piece : pieces) {
    if (piece.row < options_.first_row || piece.row >= options_.last_row) continue;
    result.origins[static_cast<size_t>(piece.row - options_.first_row)] = piece.offset;
  }
  return result;
}

}  // namespace quire
