// Computes ops::attention with AttentionKernels::cudnn: prepares the operands for cuDNN, and does what cuDNN leaves
// out.
#pragma once

#include "kernels/attention_sizes.h"

namespace quire::cuda {

void attention_in_cudnn(const AttentionSizes& sizes, const Tensor& out, const Tensor& lse,
                        const ops::AttentionInputs& in);
void attention_backward_in_cudnn(const AttentionSizes& sizes, const ops::AttentionGradients& gradients,
                                 const Tensor& dout, const Tensor& out, const Tensor& lse,
                                 const ops::AttentionInputs& in);

// Answers the questions of kernels/attention_choices.h.
void answer_for_cudnn();

}  // namespace quire::cuda
