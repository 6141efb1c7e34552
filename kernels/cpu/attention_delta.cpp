// The deltas that the backward passes of attention subtract from the gradients of probabilities; formulas in
// kernels/attention.h.
#include "kernels/attention_sizes.h"
#include "kernels/cpu/lanes.h"

namespace quire::cpu {

namespace {

// Returns the index in [R, H, T] of a line of [R, T, H].
int64_t in_delta(int64_t line, const Tensor& delta) {
  const int64_t heads = delta.dim(1);
  const int64_t queries = delta.dim(2);
  const int64_t query = line / heads;
  return (query / queries * heads + line % heads) * queries + query % queries;
}

void attention_delta(const Tensor& delta, const Tensor& dout, const Tensor& out) {
  check_attention_delta(delta, dout, out);
  const int64_t width = out.dim(3);
  dispatch("attention_delta", out.dtype(), [&](auto type) {
    using T = decltype(type);
    for_rows(delta.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        delta.data<T>()[in_delta(line, delta)] = (ConstArrayView<T>(dout.data<T>() + line * width, width) *
                                                  ConstArrayView<T>(out.data<T>() + line * width, width))
                                                     .sum();
      }
    });
  });
}

void attention_gate_backward(const Tensor& dgate, const Tensor& dattended, const Tensor& delta, const Tensor& dout,
                             const Tensor& gate, const Tensor& attended) {
  check_attention_gate_backward(dgate, dattended, delta, dout, gate, attended);
  const int64_t width = attended.dim(3);
  dispatch("attention_gate_backward", attended.dtype(), [&](auto type) {
    using T = decltype(type);
    for_rows(delta.numel(), width, [&](int64_t begin, int64_t end) {
      ArrayView<T> sigmoid(scratch<T>(0, width), width);
      for (int64_t line = begin; line < end; ++line) {
        ArrayView<T> dg(dgate.data<T>() + line * width, width);
        ArrayView<T> dx(dattended.data<T>() + line * width, width);
        const ConstArrayView<T> dy(dout.data<T>() + line * width, width);
        const ConstArrayView<T> g(gate.data<T>() + line * width, width);
        const ConstArrayView<T> x(attended.data<T>() + line * width, width);
        by_lanes(
            sigmoid.data(), width, [](const auto& a) { return T{1} / (T{1} + (-a).exp()); }, g.data());
        dg = dy * x * sigmoid * (T{1} + g * (T{1} - sigmoid));
        dx = dy * g * sigmoid;
        delta.data<T>()[in_delta(line, delta)] = (dx * x).sum();
      }
    });
  });
}

}  // namespace

void bind_attention_delta() {
  ops::attention_delta.bind(DeviceKind::cpu, attention_delta);
  ops::attention_gate_backward.bind(DeviceKind::cpu, attention_gate_backward);
}

}  // namespace quire::cpu
