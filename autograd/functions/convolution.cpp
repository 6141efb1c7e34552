#include "autograd/functions/convolution.h"

#include "autograd/functions/terms.h"
#include "kernels/convolution_sizes.h"

namespace quire {

Variable short_convolution(Tape& tape, const ConvolutionVariables& x, const Tensor& segments) {
  const ops::ConvolutionInputs in{
      .x = x.x.value(), .weight = x.weight.value(), .bias = x.bias.value(), .before = x.before, .segments = segments};
  const ConvolutionSizes s(in);
  const Tensor y = Tensor::empty_like(in.x);
  ops::short_convolution(y, in);
  return tape.result("short_convolution", y, {&x.x, &x.weight, &x.bias}, [x, in, s](const Tensor& dy) {
    const DType wide = wide_type(in.x.dtype());
    const Device device = in.x.device();
    const ops::ConvolutionGradients to{
        .dx = Tensor::empty_like(in.x),
        .dweight = Tensor::empty({s.channels, s.taps}, wide, device),
        .dbias = in.bias.defined() ? Tensor::empty({s.channels}, wide, device) : Tensor()};
    ops::short_convolution_backward(to, dy, in);
    add_to_gradient(x.x, to.dx);
    add_to_gradient(x.weight, to.dweight);
    add_to_gradient(x.bias, to.dbias);
  });
}

}  // namespace quire
