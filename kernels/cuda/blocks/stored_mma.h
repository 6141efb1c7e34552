// Attention to stored blocks in bf16 on tensor cores. An entry is a line and one of the blocks that it reads, entry e
// of line e / K. Those of a slice of lines are sorted by block and key head, so that entries that read the same keys
// stand together: a block of threads takes 64 entries and loads the keys of each of their blocks once (stored_mma.cu).
// What an entry contributes goes to memory in f32, and the K entries of a line are put together there
// (stored_parts.cu).
#pragma once

#include "kernels/cuda/blocks/stored_operands.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

using StoredInBf16 = StoredOperands<bfloat16, bfloat16>;

// The entries of a slice of lines, sorted. Both are numbered within the slice.
struct StoredEntries {
  const int32_t* place;  // block times key heads, plus the key head; N Hk where there is none, behind all others
  const int32_t* entry;
  int count;
  int64_t first_line;

  __device__ int64_t line_of(const StoredInBf16& in, int number) const { return first_line + number / in.chosen; }
};
// Of the backward pass.
struct StoredBackward {
  const bfloat16* dout;
  const float *lse, *delta, *dlse;  // [R, H, T]; dlse may be null
};

// Queries and stored blocks in bf16 whose lines are whole chunks of 8 features at multiples of 16 bytes, at most 128
// features of keys and of values, and enough queries to share blocks (StoredScratch::needed).
// values_like: out, or dout.
bool suits_tensor_cores(const Tensor& values_like, const ops::StoredAttentionInputs& in, const StoredSizes& sizes);
void stored_on_tensor_cores(const Tensor& out, const Tensor& lse, const ops::StoredAttentionInputs& in,
                            const StoredSizes& sizes);
void stored_backward_on_tensor_cores(const Tensor& dq, const Tensor& dout, const Tensor& dlse, const Tensor& out,
                                     const Tensor& lse, const ops::StoredAttentionInputs& in, const StoredSizes& sizes);

// Lines first_line .. first_line + lines - 1.
StoredEntries sort_entries(const StoredScratch& scratch, const StoredInBf16& in, int64_t first_line, int64_t lines);
// parts [entries, Dv]: attention to the block of each entry. gates [entries], in powers of 2: what its share of the
// line is a softmax of, its landmark's logit or the log of its sum over keys. Entries without a block are left out.
void attend_to_blocks(float* parts, float* gates, const StoredInBf16& in, const StoredEntries& entries);
// parts [entries, D]: the gradients of the queries as they were turned for the block of each entry, without the scale.
void gradients_by_block(float* parts, const StoredInBf16& in, const StoredEntries& entries, const StoredBackward& back);
// The results of a slice: its lines of out and lse, as of stored_attention, and of dq.
void join_parts(bfloat16* out, float* lse, const float* parts, const float* gates, const StoredInBf16& in,
                int64_t first_line, int64_t lines);
void sum_gradients(bfloat16* dq, const float* parts, const StoredInBf16& in, int64_t first_line, int64_t lines);

}  // namespace quire::cuda
