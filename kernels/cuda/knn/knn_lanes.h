// Attention to retrieved entries in bf16, read in chunks of 8 features (knn_lanes.cu).
#pragma once

#include "kernels/cuda/knn/knn_memory.h"

namespace quire::cuda {

// Says whether this kernel takes the call: bf16, lines of whole chunks at multiples of 16 bytes, 128 features at most.
bool suits_lanes(const ops::KnnAttentionInputs& in, const KnnSizes& sizes, std::initializer_list<const Tensor*> others);

void knn_attention_in_lanes(const Tensor& out, const Tensor& lse, const ops::KnnAttentionInputs& in,
                            const KnnSizes& sizes, bool goes_on);
void knn_attention_backward_in_lanes(const Tensor& dq, const Tensor& dout, const Tensor& out, const Tensor& lse,
                                     const ops::KnnAttentionInputs& in, const KnnSizes& sizes, bool accumulate);

}  // namespace quire::cuda
