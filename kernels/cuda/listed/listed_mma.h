// Listed attention in bf16 on tensor cores. An entry is a line and one of the blocks that it reads; entry e
// belongs to line e / K. The entries of a slice of lines are sorted by block and key head, so that entries that read
// the same keys are neighbours: a thread block takes 64 entries and loads the keys of each of their blocks once
// (listed_mma.cu). The result of each entry is written to memory in f32, and the K entries of a line are combined there
// (listed_parts.cu).
#pragma once

#include "kernels/cuda/listed/listed_operands.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

using ListedInBf16 = ListedOperands<bfloat16, bfloat16>;

// Lists the entries of a slice of lines, sorted by place. Both arrays are numbered within the slice.
struct ListedEntries {
  const int32_t* place;  // block * key heads + key head; N Hk without a block, which sorts last
  const int32_t* entry;
  int count;
  int64_t first_line;

  __device__ int64_t line_of(const ListedInBf16& in, int number) const { return first_line + number / in.chosen; }
};
// Holds the operands of the backward pass.
struct ListedBackward {
  const bfloat16* dout;
  const float *lse, *delta, *dlse;  // [R, H, T], without weights; dlse may be null
  float* inner;                     // [R, H, T, K], with weights: sums of P dw
};

// Says whether tensor cores take the call: queries and blocks in bf16 whose lines are whole chunks of 8 features at
// multiples of 16 bytes, at most 128 features of keys and of values, and enough queries to share blocks
// (ListedScratch::needed). values_like is out, or dout.
bool suits_tensor_cores(const Tensor& values_like, const ops::ListedAttentionInputs& in, const ListedSizes& sizes);
bool gradients_suit_tensor_cores(const ops::ListedAttentionGradients& gradients, const Tensor& dout,
                                 const ops::ListedAttentionInputs& in, const ListedSizes& sizes);
void attend_on_tensor_cores(const Tensor& out, const Tensor& lse, const Tensor& mass,
                            const ops::ListedAttentionInputs& in, const ListedSizes& sizes);
// Computes dq unless it is undefined, and with weights the sums of P dw.
void query_gradient_on_tensor_cores(const Tensor& dq, const Tensor& inner, const Tensor& dout, const Tensor& dlse,
                                    const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& in,
                                    const ListedSizes& sizes);

// Sorts the entries of lines first_line .. first_line + lines - 1.
ListedEntries sort_entries(const ListedScratch& scratch, const ListedInBf16& in, int64_t first_line, int64_t lines);
// Computes parts [entries, Dv], the attention to the block of each entry, and gates [entries] in powers of 2. A line's
// softmax over its gates gives the share of each entry, unless weights do; a gate is the landmark's logit or the log of
// the sum over keys.
// Entries without a block are left out.
void attend_to_blocks(float* parts, float* gates, const ListedInBf16& in, const ListedEntries& entries);
// Computes parts [entries, D]: the gradients of the queries as they were rotated for the block of each entry, without
// the scale.
void gradients_by_block(float* parts, const ListedInBf16& in, const ListedEntries& entries, const ListedBackward& back);

// Calls function(width) with an integral constant.
template <typename Function>
void with_width(const ListedInBf16& in, Function&& function) {
  if (in.size <= 64 && in.value_size <= 64) return function(std::integral_constant<int, 64>{});
  function(std::integral_constant<int, 128>{});
}

}  // namespace quire::cuda
