// Means of hidden states over chunks of a document. A chunk is `positions` positions of a document, however rows are
// cut.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "core/batch.h"

namespace quire::test {

struct ChunkMeansInputs {
  Variable x;                     // [R, T, E]
  Tensor remembered;              // [R, M, E]: means of earlier chunks, the newest last
  std::vector<int64_t> lengths;   // [S]: how many of them each segment begins with
  Tensor sums;                    // [S, E]: of the chunk that a segment begins inside
  std::vector<Segment> segments;  // S of them
  const Batch& batch;
  int64_t positions;
};

struct ChunkMeans {
  // [R, N, E]: the carried means, then the chunks that end here. Only the latter have a gradient.
  Variable means;
  Tensor readable;                    // u8 [R, T, N]: the last M whole chunks before a position
  Tensor found;                       // u8 [R, T, 2]: of two that are chosen from them, which exist
  std::vector<int64_t> first, count;  // [R]: the chunks among N that end in the row's last segment
  Tensor sums;                        // the sums that each segment leaves
};

ChunkMeans chunk_means(Tape& tape, const ChunkMeansInputs& in);

}  // namespace quire::test
