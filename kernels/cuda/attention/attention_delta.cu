// Computes delta, which the backward passes of attention subtract from the gradients of probabilities. The formulas are
// in kernels/attention.h.
#include "kernels/attention_sizes.h"
#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/basic/norm_team.h"
#include "kernels/cuda/basic/swiglu.h"

namespace quire::cuda {

namespace {

void attention_delta(const Tensor& delta, const Tensor& dout, const Tensor& out) {
  check_attention_delta(delta, dout, out);
  if (delta.numel() == 0) return;
  dispatch(out.dtype(), [&](auto type) { launch_delta<decltype(type)>(delta, dout, out); });
}

template <typename T, int kPack, bool kWhole>
__global__ void gate_backward_kernel(T* dgate, T* dattended, Wide<T>* delta, const T* dout, const T* gate,
                                     const T* attended, ValueLines lines, bool aligned) {
  using W = Wide<T>;
  __shared__ W of_warps[kBlock / kWarp];
  const Team<kWhole> team;
  const int64_t line = static_cast<int64_t>(blockIdx.x) * team.count + team.index;
  if (line >= lines.count) return;  // the whole team returns
  const int64_t begin = line * lines.width;
  W sum = 0;
  for (int64_t f = team.lane * kPack; f < lines.width; f += team.lanes * kPack) {
    const Pack<T, kPack> dy = load<kPack>(dout + begin + f, aligned);
    const Pack<T, kPack> g = load<kPack>(gate + begin + f, aligned);
    const Pack<T, kPack> x = load<kPack>(attended + begin + f, aligned);
    Pack<T, kPack> dg;
    Pack<T, kPack> dx;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const W in[3] = {wide(dy.value[k]), wide(g.value[k]), wide(x.value[k])};
      W found[2];
      SwigluBackward<T>{}(found, in);
      dg.value[k] = narrow<T>(found[0]);
      dx.value[k] = narrow<T>(found[1]);
      sum += wide(dx.value[k]) * in[2];  // the rounded value, which other kernels read
    }
    store<kPack>(dgate + begin + f, dg, aligned);
    store<kPack>(dattended + begin + f, dx, aligned);
  }
  sum = team.sum(sum, of_warps);
  if (team.lane == 0) delta[lines.in_delta(line)] = sum;
}

void attention_gate_backward(const Tensor& dgate, const Tensor& dattended, const Tensor& delta, const Tensor& dout,
                             const Tensor& gate, const Tensor& attended) {
  check_attention_gate_backward(dgate, dattended, delta, dout, gate, attended);
  const ValueLines lines = value_lines(attended);
  if (lines.count == 0) return;
  const bool aligned = are_aligned({dgate.raw(), dattended.raw(), dout.raw(), gate.raw(), attended.raw()});
  dispatch(attended.dtype(), [&](auto type) {
    using T = decltype(type);
    with_team<T>(lines.width, [&](auto pack, auto whole) {
      launch(gate_backward_kernel<T, decltype(pack)::value, decltype(whole)::value>,
             blocks_for_rows(lines.count, decltype(whole)::value), kBlock, 0, dgate.data<T>(), dattended.data<T>(),
             delta.data<Wide<T>>(), dout.data<T>(), gate.data<T>(), attended.data<T>(), lines, aligned);
    });
  });
}

}  // namespace

void bind_attention_delta() {
  ops::attention_delta.bind(DeviceKind::cuda, attention_delta);
  ops::attention_gate_backward.bind(DeviceKind::cuda, attention_gate_backward);
}

}  // namespace quire::cuda
