// Attention in bf16 to values of more than 128 features, as products of whole matrices through cuBLASLt: products of
// queries and keys are written to memory, become probabilities there (attention_pairs.h) and are multiplied by values.
// Such values make 2 Dv of the 2 (D + Dv) operations of a pair, which a kernel that keeps logits to itself would spend
// on recomputing them for each slice of features that its registers hold.
#pragma once

#include "kernels/attention_sizes.h"

namespace quire::cuda {

void attention_by_products(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in,
                           const AttentionSizes& sizes);
void attention_backward_by_products(const ops::AttentionGradients& gradients, const Tensor& dout, const Tensor& out,
                                    const Tensor& lse, const ops::AttentionInputs& in, const AttentionSizes& sizes);

}  // namespace quire::cuda
