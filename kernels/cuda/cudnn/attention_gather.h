// Copies carried keys and those of the segment into one line without gaps, as cuDNN's attention reads them, and back.
#pragma once

#include "kernels/cudnn_scratch.h"

namespace quire::cuda {

// Names are those of kernels/attention.h. first_visible is an AttentionBand with B = AttentionBand::carried; the
// queries of row r see at most the n[r] = min(B, max(0, -first_visible[r, 0])) newest keys of the ring.

// Computes the lengths of queries and keys, i32 [R] each: T, and T + n[r].
void line_lengths(const Tensor& query_lengths, const Tensor& key_lengths, const Tensor& first_visible, int64_t carried);

// Fills line [R, B + T, Hk, W] with the n[r] newest keys of the ring [R, C, Hk, W], oldest first, those of the segment
// [R, T, Hk, W], and zeros.
void gather_line(const Tensor& line, const Tensor& segment, const Tensor& ring, const Tensor& head,
                 const Tensor& key_lengths);
// Copies a line back. Slots of the ring that are not in the line become zero. An undefined segment or ring is left out.
void scatter_line(const Tensor& segment, const Tensor& ring, const Tensor& line, const Tensor& head,
                  const Tensor& key_lengths, int64_t queries);

// Computes where the documents of rows lie in the operands of cuDNN's calls. key_lengths are those of lines with
// carried keys, whose sequences begin with all of them or none; undefined where the keys are those of the segment.
void sequence_tables(const CudnnSequenceTables& tables, const AttentionSizes& sizes, const Tensor& sequences,
                     const Tensor& key_lengths, int64_t carried);

// Computes to [R, T, H, W] = from, with zeros for queries that see nothing. `to` may be `from`.
void clear_unseeing(const Tensor& to, const Tensor& from, const Tensor& first_visible);

}  // namespace quire::cuda
