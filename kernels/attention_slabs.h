// Cuts a GPU's attention to values of more than 128 features in bf16 into products of matrices
// (kernels/cuda/attention_products.cu), and allocates their scratch memory.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/attention_sizes.h"

namespace quire {

struct AttentionSlabLimits {
  int64_t fewest_queries = 256;      // minimum of a slab, if there are as many
  int64_t lines = 4096;              // queries of a product that occupy a GPU, if there are as many
  int64_t pairs = int64_t{1} << 29;  // limit for a group, 2 bytes each for probabilities and for gradients of logits
};

// A slab is `length` queries one after the other, or as many keys at the same positions; the last one may be shorter.
// Queries of a slab are multiplied by slabs of keys first(slab) .. end(slab) - 1, and by the ring.
class AttentionSlabs {
 public:
  AttentionSlabs(const AttentionSizes& sizes, const ops::AttentionInputs& in);
  // Returns whether calls of these sizes are computed in slabs.
  static bool suit(const AttentionSizes& sizes, const ops::AttentionInputs& in) {
    return in.q.dtype() == DType::bf16 && sizes.value_size > 128 && sizes.size > 0 && in.scale != 0;
  }

  static inline AttentionSlabLimits limits;  // a test may change them

  int64_t rows, queries, slots, entries;
  int64_t length = 0;
  int64_t count = 0;
  int64_t ring = 0;    // keys of the ring, with zeros in front up to a multiple of 8; 0 when no query sees it
  int64_t ringed = 0;  // slabs 0 .. ringed - 1 see it
  int64_t width = 0;   // the largest number of keys of the segment that one slab is multiplied by

  int64_t first(int64_t slab) const;
  int64_t end(int64_t slab) const { return both_ways_ ? count : slab + 1; }
  // Return the number of queries or keys of slabs begin .. end - 1.
  int64_t size_of(int64_t begin, int64_t end) const { return std::min(end * length, queries) - begin * length; }
  int64_t keys_of(int64_t slab) const { return size_of(first(slab), end(slab)); }
  // Returns how many entries of a table a slab's pairs reach; they are its last ones.
  int64_t terms_of(int64_t slab) const;

  // One product of each kind: some rows of one slab, or some slabs of one row that are cut in the same way.
  struct Piece {
    int64_t row, rows, slab, slabs;
    int64_t begin, end;  // slabs of queries that see the keys; each further slab is shifted by one
    int64_t at_once() const { return rows * slabs; }
  };
  // The slabs of queries whose pairs are stored at the same time in the backward pass.
  struct Group {
    int64_t begin, end;
  };
  std::vector<Group> groups() const;
  std::vector<Piece> pieces_of_queries(const Group& group) const;
  std::vector<Piece> pieces_of_keys(const Group& group) const;
  // Return the largest number of queries of a piece, and of entries that one reaches, in multiples of eight.
  int64_t most_lines() const;
  int64_t most_terms() const;
  // Returns the number of queries of a row of a group that see the ring.
  int64_t ringed_queries(const Group& group) const {
    return group.begin < ringed ? size_of(group.begin, std::min(group.end, ringed)) : 0;
  }

  // Returns the number of stored pairs of a row of a group. Query q and key k of the segment lie at q * width + k,
  // where q and k count from the first ones of the group. A slab sees at most the keys up to its own position, so no
  // two pairs share a place, and queries and keys of several slabs form one matrix.
  int64_t stored_pairs(const Group& group) const { return (group.end - group.begin) * length * (width + 1); }

 private:
  bool both_ways_;
  bool bounded_ = false;
  int64_t before_ = 0;  // keys before a slab that it sees, if that number is bounded

  void add_pieces(std::vector<Piece>& pieces, const Piece& first, int64_t alike) const;
};

// Tensors that a call does not need stay undefined.
struct AttentionProductScratch {
  AttentionProductScratch(const AttentionSlabs& slabs, const AttentionSizes& sizes, const ops::AttentionInputs& in,
                          bool backward);

  Tensor lowest;                  // i32 [R]: the oldest position of the ring that any query of a row sees
  Tensor ring_keys, ring_values;  // [R, ring, D or Dv], in order of position, zeros where no query sees them
  Tensor content;                 // [R, T, D]: q + u
  Tensor position;                // [lines, D]: q + v_bias
  Tensor logits, ring_logits;     // f32 [lines, width or ring]: products of queries and keys
  Tensor terms;                   // f32 [lines, terms]
  Tensor weights, ring_weights;   // [lines, width or ring]; in the backward pass those of a group
};

// The additional scratch of the backward pass.
struct AttentionProductBackwardScratch {
  AttentionProductBackwardScratch(const AttentionSlabs& slabs, const AttentionProductScratch& forward,
                                  const AttentionSizes& sizes, const ops::AttentionGradients& gradients,
                                  const ops::AttentionInputs& in);

  Tensor products, ring_products;    // f32, as logits: products of dout and values
  Tensor gradients, ring_gradients;  // same shape as weights: gradients of logits
  Tensor shifted;                    // [lines, terms]: gradients of logits, by distance
  Tensor of_content, of_position;    // f32 [lines, D]: parts of dq
  Tensor keys, values;               // f32 [R, T, D or Dv]: sums for one key head, when several products are added up
  Tensor ring_key_sums, ring_value_sums;  // f32 [R, ring, D or Dv]
  Tensor table;                           // f32 [N, D]: dr of one head
};

}  // namespace quire
