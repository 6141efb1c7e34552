// The sizes of a call of the short convolution, and the checks that the kernels of all devices make.
#pragma once

#include "kernels/convolution.h"

namespace quire {

struct ConvolutionSizes {
  int64_t cells, channels, taps, segments;

  // Throws Error(internal) when the shapes or types of the inputs do not fit.
  explicit ConvolutionSizes(const ops::ConvolutionInputs& in);
};

}  // namespace quire
