#include "tests/golden/tensor_parts.h"

#include "kernels/elementwise.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {

namespace {

Tensor packed_copy(const Tensor& view) {
  const Tensor copy = Tensor::empty_like(view);
  ops::copy(copy, view);
  return copy;
}

}  // namespace

Tensor part(const Tensor& tensor, int axis, int64_t begin, int64_t end) {
  return packed_copy(tensor.slice(axis, begin, end));
}

Tensor joined(const Tensor& a, const Tensor& b, int axis) {
  Shape shape = a.shape();
  shape[axis] += b.dim(axis);
  const Tensor whole = Tensor::zeros(shape, a.dtype(), a.device());
  ops::copy(whole.slice(axis, 0, a.dim(axis)), a);
  ops::copy(whole.slice(axis, a.dim(axis), shape[axis]), b);
  return whole;
}

Tensor swapped(const Tensor& tensor, int first, int second) {
  return packed_copy(tensor.transpose(first, second));
}

AttentionVariables one_hot_values(const AttentionVariables& x, const ops::AttentionInputs& settings, int64_t carried) {
  const int64_t rows = x.k.dim(0);
  const int64_t tokens = x.k.dim(1);
  const int64_t heads = x.k.dim(2);
  const int64_t width = carried + tokens;
  const DType dtype = x.q.value().dtype();
  const Tensor values = Tensor::zeros({rows, tokens, heads, width}, DType::f64);
  for (int64_t i = 0; i < rows * tokens * heads; ++i) {
    values.data<double>()[i * width + carried + i / heads % tokens] = 1;
  }
  AttentionVariables one_hot = x;
  one_hot.v = Variable::constant(converted(values, dtype).to(test_device()));
  if (x.cache_k.defined()) {
    const int64_t slots = x.cache_k.dim(1);
    const Tensor ring = Tensor::zeros({rows, slots, heads, width}, DType::f64);
    const std::vector<int32_t> heads_of_rows = settings.cache_head.to_vector<int32_t>();
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = heads_of_rows[static_cast<size_t>(r)];
      for (int64_t age = 1; age <= carried; ++age) {
        const int64_t slot = (head - age + slots) % slots;
        for (int64_t h = 0; h < heads; ++h) {
          ring.data<double>()[((r * slots + slot) * heads + h) * width + carried - age] = 1;
        }
      }
    }
    one_hot.cache_v = Variable::constant(converted(ring, dtype).to(test_device()));
  }
  return one_hot;
}

Tensor probabilities(const AttentionVariables& x, const ops::AttentionInputs& settings, int64_t carried) {
  Tape tape(false);
  return swapped(attention(tape, one_hot_values(x, settings, carried), settings).value(), 1, 2);
}

}  // namespace quire::test
