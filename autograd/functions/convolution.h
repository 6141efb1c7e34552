// The short convolution; formula and shapes in kernels/convolution.h.
#pragma once

#include "autograd/tape.h"

namespace quire {

struct ConvolutionVariables {
  Variable x;       // [N, C]
  Variable weight;  // [C, W]
  Variable bias;    // wide [C], or undefined
  Tensor before;    // wide [S, W - 1, C], constant
};
// segments: i32 [S, 2], first cell and number of cells of each. [N, C].
Variable short_convolution(Tape& tape, const ConvolutionVariables& x, const Tensor& segments);

}  // namespace quire
