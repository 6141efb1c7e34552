// What happens between the products of attention_products.cpp: logits to probabilities, and to gradients of logits, for
// one piece (kernels/attention_slabs.h) of a head. Products are f32, what the next products read is bf16.
#pragma once

#include "kernels/cuda/attention_tiles.h"

namespace quire::cuda {

// Matrices of pairs of a piece: `lines` queries each, and columns for keys of the segment and for the ring.
struct PairsOfPiece {
  AttentionOperands<bfloat16> in;
  int head;
  int matrices;
  int row, slab;  // of the first matrix
  bool by_rows;   // the next one is of the next row, or of the next slab
  int length;     // queries of a whole slab
  int lines;
  int keys;                                   // of the segment
  int first_key;                              // position of the first of them, in the first matrix
  int ring;                                   // columns of the ring, the newest key last; 0: not seen
  int terms_seen;                             // entries of the tables, the last ones
  int stride, terms_stride;                   // of lines
  const float *logits, *ring_logits, *terms;  // products of queries with keys and with the table
};

// bf16 values of the same pairs.
struct StoredPairs {
  bfloat16* pairs;
  int64_t matrix_step, line_step;
  bfloat16* ring;
  int64_t ring_matrix_step;
};

// Probabilities, and lse [R, H, T].
void weights_of_pairs(const PairsOfPiece& pairs, const StoredPairs& weights, float* lse);

struct PairGradients {
  const float *products, *ring_products;  // of dout and values, as logits
  const float *lse, *delta;               // [R, H, T]
  StoredPairs weights;                    // probabilities; null where nobody asks
  StoredPairs gradients;                  // of logits, times the scale
  bfloat16* shifted;                      // the same by distance, as terms; null without tables
};
void gradients_of_pairs(const PairsOfPiece& pairs, const PairGradients& to);

// to [matrices, lines, D] = q + added[head], of the queries of a piece.
void add_to_queries(bfloat16* to, const PairsOfPiece& pairs, const float* added);
// dq of a piece: of_content + of_position [matrices, lines, D]; of_position may be null.
void store_query_gradients(bfloat16* dq, const PairsOfPiece& pairs, const float* of_content, const float* of_position);
// to [count, heads, width] at `head` = from [count, width].
void store_of_head(const Tensor& to, const Tensor& from, int64_t head);

// The ring of a key head in order of position, the newest key last: line [R, columns, W] from ring [R, C, Hk, W], zeros
// where no query of the row sees a key. lowest i32 [R]: the first position that one sees.
void lowest_positions(const Tensor& lowest, const AttentionOperands<bfloat16>& in);
void gather_ring(const Tensor& line, const Tensor& ring, const Tensor& head, const Tensor& lowest, int64_t kv_head);
void scatter_ring(const Tensor& ring, const Tensor& line, const Tensor& head, int64_t kv_head);

}  // namespace quire::cuda
