#include "data/batches/packer.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

Packer::Packer(const Documents& documents, const Tokenizer& tokenizer, const BatchOptions& options)
    : documents_(documents),
      bos_(tokenizer.bos_id()),
      eos_(tokenizer.eos_id()),
      options_(options),
      inserter_(options.insertion, tokenizer.vocabulary_size()) {
  QUIRE_CHECK(0 <= options.first_row && options.first_row <= options.last_row && options.last_row <= options.data.rows,
              "packer: rows {}..{} of {}", options.first_row, options.last_row, options.data.rows);
}

Batch Packer::pack(std::span<const Piece> pieces) const {
  Batch batch = Batch::empty(options_.last_row - options_.first_row, options_.data.subsequence, options_.first_row,
                             {.recalled = documents_.marked(), .inserted = options_.insertion.any()});
  int64_t row = -1;
  int32_t segment = 0;
  for (const Piece& piece : pieces) {
    // The pieces of a stream are one segment.
    segment = piece.row == row && !piece.stream ? segment + 1 : 0;
    row = piece.row;
    if (row >= options_.first_row && row < options_.last_row) put(piece, segment, batch);
  }
  return batch;
}

void Packer::put(const Piece& piece, int32_t segment, Batch& batch) const {
  const int64_t row = piece.row - options_.first_row;
  const int64_t cell = batch.at(row, piece.position);
  const auto begin = static_cast<size_t>(cell);
  // A piece without tokens is only an inserted token at the end of a document.
  const int64_t tokens = inserter_.tokens(piece.phase, piece.count);
  if (tokens > 0) {
    put_tokens(piece, begin, tokens, batch);
    if (documents_.marked()) {
      put_marks(piece, begin, tokens, batch);
    } else {
      std::fill_n(&batch.loss_mask[begin], tokens, uint8_t{1});
    }
    const int64_t left_out = std::clamp<int64_t>(first_counted(piece) - piece.offset, 0, tokens);
    for (int64_t i = 0; i < left_out; ++i) set_target(batch, begin + static_cast<size_t>(i), {});
  }
  inserter_.spread(batch, cell, piece.phase, piece.count, target_before(piece));

  for (int64_t i = 0; i < piece.count; ++i) {
    const auto at = static_cast<size_t>(cell + i);
    batch.target_count += batch.loss_mask[at];
    batch.segment[at] = segment;
    batch.position[at] = static_cast<int32_t>(std::min<int64_t>(piece.place + i, INT32_MAX));
    batch.document[at] = piece.document;
  }
  if (std::string name = documents_.name(piece.document); !name.empty()) batch.names[piece.document] = std::move(name);
  if (piece.position == 0 && piece.place == 0) batch.starts[static_cast<size_t>(row)] = 1;
}

int64_t Packer::first_counted(const Piece& piece) const {
  int64_t first = options_.data.score_first_token ? 0 : 1;
  if (piece.context > 0) first = std::max(first, piece.offset + piece.context);
  if (options_.count_last) first = std::max(first, documents_.length(piece.document) + 1 - *options_.count_last);
  return first;
}

MarkedTarget Packer::target_before(const Piece& piece) const {
  if (!options_.insertion.predicts() || !options_.insertion.is_inserted(piece.phase)) return {};
  // The token before is in the same document: an inserted token belongs to the document of the token before it.
  const int64_t offset = piece.offset - 1;
  if (offset < first_counted(piece)) return {};
  MarkedTarget target{.id = eos_, .counted = true};
  if (offset < documents_.length(piece.document)) documents_.tokens(piece.document, offset, 1, &target.id);
  inserter_.check({&target.id, 1}, fmt::format("document {}", piece.document));
  if (!documents_.marked()) return target;
  uint8_t mark = 0;
  documents_.marks(piece.document, offset, 1, &mark);
  if ((mark & kCounted) == 0) return {};
  target.recalled = (mark & kRecalled) != 0;
  return target;
}

// Writes text tokens and their targets, without gaps.
void Packer::put_tokens(const Piece& piece, size_t begin, int64_t count, Batch& batch) const {
  const int64_t length = documents_.length(piece.document);
  QUIRE_CHECK(piece.offset + count <= length + 1, "packer: tokens {}..{} of a document of {}", piece.offset,
              piece.offset + count, length + 1);
  // Offset k holds stored token k - 1 and predicts stored token k.
  const int64_t known = std::min(count, length - piece.offset);
  documents_.tokens(piece.document, piece.offset, known, &batch.targets[begin]);
  batch.tokens[begin] = bos_;
  if (piece.offset > 0) documents_.tokens(piece.document, piece.offset - 1, 1, &batch.tokens[begin]);
  const std::string where = fmt::format("document {}", piece.document);
  inserter_.check({&batch.tokens[begin], 1}, where);
  inserter_.check({&batch.targets[begin], static_cast<size_t>(known)}, where);
  if (known < count) batch.targets[begin + static_cast<size_t>(count) - 1] = eos_;
  std::copy_n(&batch.targets[begin], count - 1, &batch.tokens[begin] + 1);
}

void Packer::put_marks(const Piece& piece, size_t begin, int64_t count, Batch& batch) const {
  std::vector<uint8_t> marks(static_cast<size_t>(count));
  documents_.marks(piece.document, piece.offset, count, marks.data());
  for (size_t i = 0; i < marks.size(); ++i) {
    const bool counted = (marks[i] & kCounted) != 0;
    batch.loss_mask[begin + i] = counted ? 1 : 0;
    batch.recalled[begin + i] = counted && (marks[i] & kRecalled) != 0 ? 1 : 0;
    if (!counted) batch.targets[begin + i] = 0;
  }
}

}  // namespace quire
