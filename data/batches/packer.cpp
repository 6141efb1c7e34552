#include "data/batches/packer.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

Packer::Packer(const Documents& documents, int32_t bos, int32_t eos, const BatchOptions& options)
    : documents_(documents), bos_(bos), eos_(eos), options_(options) {
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
  if (documents_.marked()) batch.recalled.assign(cells, 0);
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
  const int64_t length = documents_.length(piece.document);
  QUIRE_CHECK(piece.offset + piece.count <= length + 1, "packer: positions {}..{} of a document of {}", piece.offset,
              piece.offset + piece.count, length + 1);
  const auto begin = static_cast<size_t>(batch.at(row, piece.position));
  const auto count = static_cast<size_t>(piece.count);

  // Offset k holds stored token k - 1 and predicts stored token k.
  const int64_t known = std::min(piece.count, length - piece.offset);
  documents_.tokens(piece.document, piece.offset, known, &batch.targets[begin]);
  if (known < piece.count) batch.targets[begin + count - 1] = eos_;
  batch.tokens[begin] = bos_;
  if (piece.offset > 0) documents_.tokens(piece.document, piece.offset - 1, 1, &batch.tokens[begin]);
  std::copy_n(&batch.targets[begin], count - 1, &batch.tokens[begin] + 1);

  const int64_t first_position = piece.stream.value_or(piece.offset);
  for (size_t i = 0; i < count; ++i) {
    batch.segment[begin + i] = segment;
    batch.position[begin + i] =
        static_cast<int32_t>(std::min<int64_t>(first_position + static_cast<int64_t>(i), INT32_MAX));
    batch.document[begin + i] = piece.document;
  }
  if (documents_.marked()) {
    put_marks(piece, begin, batch);
  } else {
    std::fill_n(&batch.loss_mask[begin], count, uint8_t{1});
    batch.target_count += piece.count;
  }
  if (piece.position == 0 && first_position == 0) batch.starts[static_cast<size_t>(row)] = 1;
}

void Packer::put_marks(const Piece& piece, size_t begin, Batch& batch) const {
  std::vector<uint8_t> marks(static_cast<size_t>(piece.count));
  documents_.marks(piece.document, piece.offset, piece.count, marks.data());
  for (size_t i = 0; i < marks.size(); ++i) {
    const bool counted = (marks[i] & kCounted) != 0;
    batch.loss_mask[begin + i] = counted ? 1 : 0;
    batch.recalled[begin + i] = counted && (marks[i] & kRecalled) != 0 ? 1 : 0;
    batch.target_count += counted ? 1 : 0;
    if (!counted) batch.targets[begin + i] = 0;
  }
}

}  // namespace quire
