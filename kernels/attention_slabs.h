// How a GPU's attention to values of more than 128 features in bf16 is cut into products of matrices
// (kernels/cuda/attention_products.cu), and what it takes beside its operands.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/attention_sizes.h"

namespace quire {

struct AttentionSlabLimits {
  int64_t fewest_queries = 256;      // of a slab, if there are as many
  int64_t lines = 4096;              // queries of a product that keep a GPU busy, where so many are there
  int64_t pairs = int64_t{1} << 29;  // of a group, 2 bytes each for probabilities and for gradients of logits
};

// A slab is `length` queries one after the other, or as many keys at the same positions; the last one may be shorter.
// Queries of a slab are multiplied by slabs of keys first(slab) .. end(slab) - 1, and by the ring.
class AttentionSlabs {
 public:
  AttentionSlabs(const AttentionSizes& sizes, const ops::AttentionInputs& in);
  // Calls of these sizes are made so.
  static bool suit(const AttentionSizes& sizes, const ops::AttentionInputs& in) {
    return in.q.dtype() == DType::bf16 && sizes.value_size > 128 && sizes.size > 0 && in.scale != 0;
  }

  static inline AttentionSlabLimits limits;  // a test may set others

  int64_t rows, queries, slots, entries;
  int64_t length = 0;
  int64_t count = 0;
  int64_t ring = 0;    // keys of the ring, with zeros in front to a multiple of 8; 0 where no query sees it
  int64_t ringed = 0;  // slabs 0 .. ringed - 1 see it
  int64_t width = 0;   // keys of the segment that one slab is multiplied by, at most

  int64_t first(int64_t slab) const;
  int64_t end(int64_t slab) const { return both_ways_ ? count : slab + 1; }
  // Queries or keys of slabs begin .. end - 1.
  int64_t size_of(int64_t begin, int64_t end) const { return std::min(end * length, queries) - begin * length; }
  int64_t keys_of(int64_t slab) const { return size_of(first(slab), end(slab)); }
  // The entries of a table that a slab's pairs reach, its last ones.
  int64_t terms_of(int64_t slab) const;

  // One product of each kind: some rows of one slab, or some slabs of one row that are cut alike.
  struct Piece {
    int64_t row, rows, slab, slabs;
    int64_t begin, end;  // of keys: slabs of queries that see them; for further slabs as many further
    int64_t at_once() const { return rows * slabs; }
  };
  // Slabs of queries whose pairs are stored at the same time in the backward pass.
  struct Group {
    int64_t begin, end;
  };
  std::vector<Group> groups() const;
  std::vector<Piece> pieces_of_queries(const Group& group) const;
  std::vector<Piece> pieces_of_keys(const Group& group) const;
  // Queries of a piece at most, and entries that one reaches, in whole eights.
  int64_t most_lines() const;
  int64_t most_terms() const;
  // Of a row of a group: those that see the ring.
  int64_t ringed_queries(const Group& group) const {
    return group.begin < ringed ? size_of(group.begin, std::min(group.end, ringed)) : 0;
  }

  // Pairs of a group in one place: query q and key k of the segment of a row at q * width + k, for q and k from the
  // first ones of the group on. Slabs see keys that lie no further ahead than they do, so that no two pairs share a
  // place, and queries and keys of several slabs are one matrix.
  int64_t stored_pairs(const Group& group) const { return (group.end - group.begin) * length * (width + 1); }

 private:
  bool both_ways_;
  bool bounded_ = false;
  int64_t before_ = 0;  // keys that a slab sees before it, where that is bounded

  void add_pieces(std::vector<Piece>& pieces, const Piece& first, int64_t alike) const;
};

// Tensors that a call does not need stay undefined.
struct AttentionProductScratch {
  AttentionProductScratch(const AttentionSlabs& slabs, const AttentionSizes& sizes, const ops::AttentionInputs& in,
                          bool backward);

  Tensor lowest;                  // i32 [R]: the first position of the ring that any query of a row sees
  Tensor ring_keys, ring_values;  // [R, ring, D or Dv], in order of position, zeros where nobody sees them
  Tensor content;                 // [R, T, D]: q + u
  Tensor position;                // [lines, D]: q + v_bias
  Tensor logits, ring_logits;     // f32 [lines, width or ring]: products of queries and keys
  Tensor terms;                   // f32 [lines, terms]
  Tensor weights, ring_weights;   // [lines, width or ring]; in the backward pass those of a group
};

// Of the backward pass, besides.
struct AttentionProductBackwardScratch {
  AttentionProductBackwardScratch(const AttentionSlabs& slabs, const AttentionProductScratch& forward,
                                  const AttentionSizes& sizes, const ops::AttentionGradients& gradients,
                                  const ops::AttentionInputs& in);

  Tensor products, ring_products;         // f32, as logits: products of dout and values
  Tensor gradients, ring_gradients;       // as weights: of logits
  Tensor shifted;                         // [lines, terms]: of logits, by distance
  Tensor of_content, of_position;         // f32 [lines, D]: parts of dq
  Tensor keys, values;                    // f32 [R, T, D or Dv]: of one key head, where several products are added up
  Tensor ring_key_sums, ring_value_sums;  // f32 [R, ring, D or Dv]
  Tensor table;                           // f32 [N, D]: dr of one head
};

}  // namespace quire
