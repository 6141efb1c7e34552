// Means of hidden states over chunks of a document, on the host in double precision. A chunk is `positions` positions
// of a document, whatever a row is cut into.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "core/batch.h"

namespace quire::test {

struct ChunkMeansInputs {
  Variable x;                     // [R, T, E]
  Tensor remembered;              // [R, M, E]: means of earlier chunks, the newest last
  std::vector<int64_t> lengths;   // [S]: how many of them each segment begins with
  Tensor sums;                    // f64 [S, E + 1]: of the chunk that a segment begins inside, and its positions
  std::vector<Segment> segments;  // S of them
  const Batch& batch;
  int64_t positions;
};

struct ChunkMeans {
  // [R, N, E]: what is remembered, then the chunks that end here. Only these have a gradient.
  Variable means;
  // i32 [R, T, 2], on the host: the rows [begin, end) of means [R * N, E] that are the last M whole chunks before a
  // position.
  Tensor readable;
  std::vector<int64_t> first, count;  // [R]: the chunks among N that end in the row's last segment
  Tensor sums;                        // what each segment leaves
};

ChunkMeans chunk_means(Tape& tape, const ChunkMeansInputs& in);

// i32 [R, T, 2], on the host: of the means that a position may read, the two with the largest products with its query
// [R, T, E]; the best one last, -1 where there is none, ties to the older one.
Tensor best_two(const Tensor& queries, const Tensor& means, const Tensor& readable);
// softmax(q . c / sqrt(E)) over those that were chosen; [R * T * 2], 0 where there is none.
std::vector<double> weights_of(const Tensor& queries, const Tensor& means, const Tensor& chosen);

}  // namespace quire::test
