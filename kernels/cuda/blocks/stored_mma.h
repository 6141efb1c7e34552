// Attention to stored blocks in bf16 on tensor cores. An entry is a line and one of the blocks that it reads; entry e
// belongs to line e / K. The entries of a slice of lines are sorted by block and key head, so that entries that read
// the same keys are neighbours: a thread block takes 64 entries and loads the keys of each of their blocks once
// (stored_mma.cu). The result of each entry is written to memory in f32, and the K entries of a line are combined there
// (stored_parts.cu).
#pragma once

#include "kernels/cuda/blocks/stored_operands.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

using StoredInBf16 = StoredOperands<bfloat16, bfloat16>;

// Lists the entries of a slice of lines, sorted by place. Both arrays are numbered within the slice.
struct StoredEntries {
  const int32_t* place;  // block * key heads + key head; N Hk without a block, which sorts last
  const int32_t* entry;
  int count;
  int64_t first_line;

  __device__ int64_t line_of(const StoredInBf16& in, int number) const { return first_line + number / in.chosen; }
};
// Holds the operands of the backward pass.
struct StoredBackward {
  const bfloat16* dout;
  const float *lse, *delta, *dlse;  // [R, H, T]; dlse may be null
};

// Says whether tensor cores take the call: queries and stored blocks in bf16 whose lines are whole chunks of 8 features
// at multiples of 16 bytes, at most 128 features of keys and of values, and enough queries to share blocks
// (StoredScratch::needed). values_like is out, or dout.
bool suits_tensor_cores(const Tensor& values_like, const ops::StoredAttentionInputs& in, const StoredSizes& sizes);
void stored_on_tensor_cores(const Tensor& out, const Tensor& lse, const ops::StoredAttentionInputs& in,
                            const StoredSizes& sizes);
void stored_backward_on_tensor_cores(const Tensor& dq, const Tensor& dout, const Tensor& dlse, const Tensor& out,
                                     const Tensor& lse, const ops::StoredAttentionInputs& in, const StoredSizes& sizes);

// Sorts the entries of lines first_line .. first_line + lines - 1.
StoredEntries sort_entries(const StoredScratch& scratch, const StoredInBf16& in, int64_t first_line, int64_t lines);
// Computes parts [entries, Dv], the attention to the block of each entry, and gates [entries] in powers of 2. A line's
// softmax over its gates gives the share of each entry; a gate is the landmark's logit or the log of the sum over keys.
// Entries without a block are left out.
void attend_to_blocks(float* parts, float* gates, const StoredInBf16& in, const StoredEntries& entries);
// Computes parts [entries, D]: the gradients of the queries as they were rotated for the block of each entry, without
// the scale.
void gradients_by_block(float* parts, const StoredInBf16& in, const StoredEntries& entries, const StoredBackward& back);
// Write the results of a slice: its lines of out and lse, as of stored_attention, and its lines of dq.
void join_parts(bfloat16* out, float* lse, const float* parts, const float* gates, const StoredInBf16& in,
                int64_t first_line, int64_t lines);
void sum_gradients(bfloat16* dq, const float* parts, const StoredInBf16& in, int64_t first_line, int64_t lines);

}  // namespace quire::cuda
