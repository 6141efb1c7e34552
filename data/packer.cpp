#include "data/packer.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

Packer::Packer(const Split& split, int32_t bos, int32_t eos, const BatchOptions& options)
    : split_(split), bos_(bos), eos_(eos), options_(options) {
  QUIRE_CHECK(0 <= options.first_row && options.first_row <= options.last_row && options.last_row <= options.rows,
              "packer: rows {}..{} of {}", options.first_row, options.last_row, options.rows);
}

Batch Packer::pack(std::span<const Piece> pieces) const {
  Batch batch;
  batch.rows = options_.last_row - options_.first_row;
  batch.length = options_.subsequence;
  batch.first_row = options_.first_row;
  const auto cells = static_cast<size_t>(batch.rows * batch.length);
  batch.tokens.assign(cells, 0);
  batch.targets.assign(cells, 0);
  batch.loss_mask.assign(cells, 0);
  batch.segment.assign(cells, -1);
  batch.position.assign(cells, 0);
  batch.document.assign(cells, -1);
  batch.starts.assign(static_cast<size_t>(batch.rows), 0);

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
  const int64_t length = split_.length(piece.document);
  QUIRE_CHECK(piece.offset + piece.count <= length + 1, "packer: positions {}..{} of a document of {}", piece.offset,
              piece.offset + piece.count, length + 1);
  const auto begin = static_cast<size_t>(batch.at(row, piece.position));
  const auto count = static_cast<size_t>(piece.count);

  // Offset k holds stored token k - 1 and predicts stored token k.
  const int64_t known = std::min(piece.count, length - piece.offset);
  split_.tokens(piece.document, piece.offset, known, &batch.targets[begin]);
  if (known < piece.count) batch.targets[begin + count - 1] = eos_;
  batch.tokens[begin] = bos_;
  if (piece.offset > 0) split_.tokens(piece.document, piece.offset - 1, 1, &batch.tokens[begin]);
  std::copy_n(&batch.targets[begin], count - 1, &batch.tokens[begin] + 1);

  const int64_t first_position = piece.stream.value_or(piece.offset);
  for (size_t i = 0; i < count; ++i) {
    batch.loss_mask[begin + i] = 1;
    batch.segment[begin + i] = segment;
    batch.position[begin + i] =
        static_cast<int32_t>(std::min<int64_t>(first_position + static_cast<int64_t>(i), INT32_MAX));
    batch.document[begin + i] = piece.document;
  }
  batch.target_count += piece.count;
  if (piece.position == 0 && first_position == 0) batch.starts[static_cast<size_t>(row)] = 1;
}

}  // namespace quire
