#include "kernels/convolution_sizes.h"

#include "core/check.h"

namespace quire {

ConvolutionSizes::ConvolutionSizes(const ops::ConvolutionInputs& in) {
  QUIRE_CHECK(in.x.rank() == 2 && in.weight.rank() == 2 && in.segments.rank() == 2,
              "short_convolution: x is {}, weight is {}", in.x.shape().to_string(), in.weight.shape().to_string());
  cells = in.x.dim(0), channels = in.x.dim(1), taps = in.weight.dim(1), segments = in.segments.dim(0);
  const DType type = in.x.dtype(), wide = wide_type(type);
  QUIRE_CHECK(in.weight.dim(0) == channels && taps > 0 && in.weight.dtype() == type && in.x.is_contiguous() &&
                  in.weight.is_contiguous(),
              "short_convolution: x is {}, weight is {}", in.x.shape().to_string(), in.weight.shape().to_string());
  QUIRE_CHECK(!in.bias.defined() || (in.bias.shape() == Shape{channels} && in.bias.dtype() == wide),
              "short_convolution: bias is {}, not [{}]", in.bias.shape().to_string(), channels);
  QUIRE_CHECK(in.before.shape() == (Shape{segments, taps - 1, channels}) && in.before.dtype() == wide &&
                  in.before.is_contiguous(),
              "short_convolution: before is {}, not [{}, {}, {}]", in.before.shape().to_string(), segments, taps - 1,
              channels);
  QUIRE_CHECK(in.segments.dtype() == DType::i32 && in.segments.dim(1) == 2 && in.segments.is_contiguous(),
              "short_convolution: segments are {}, not i32 [S, 2]", in.segments.shape().to_string());
}

}  // namespace quire
