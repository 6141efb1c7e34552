// A short causal convolution of every channel with itself.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// Tokens are cells 0 .. N - 1. A segment is a run of cells of one document.
struct ConvolutionInputs {
  Tensor x;         // [N, C]
  Tensor weight;    // [C, W]; the last column multiplies the token itself
  Tensor bias;      // wide [C], or undefined
  Tensor before;    // wide [S, W - 1, C]: the inputs before each segment, the newest last
  Tensor segments;  // i32 [S, 2]: first cell and number of cells, in order and disjoint

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&x, &weight, &bias, &before, &segments}) f(*tensor);
  }
};

// Gradients; they are overwritten. dweight [C, W] and dbias [C] are wide; dbias is undefined when the bias is.
struct ConvolutionGradients {
  Tensor dx, dweight, dbias;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dx, &dweight, &dbias}) f(*tensor);
  }
};

// y_t = silu(bias + sum over i of weight_i x_(t - W + 1 + i)), within a segment; zero outside segments. y [N, C]. (Yang
// et al. 2024, "Gated Delta Networks"; the short convolution of H3 and Mamba)
QUIRE_OP(short_convolution, const Tensor& y, const ConvolutionInputs& in);
QUIRE_OP(short_convolution_backward, const ConvolutionGradients& to, const Tensor& dy, const ConvolutionInputs& in);

}  // namespace quire::ops
