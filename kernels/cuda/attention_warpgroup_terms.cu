#include "kernels/cuda/attention_warpgroup_terms.h"

namespace quire::cuda {

namespace {

constexpr int kWarps = kBlock / kWarp;

// A warp has a distance of a head.
__global__ void __launch_bounds__(kBlock) term_biases_kernel(float* biases, AttentionOperands<bfloat16> in) {
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kWarps + warp_of_block();
  if (line >= static_cast<int64_t>(in.heads) * in.entries) return;
  const int64_t head = line / in.entries;
  const int64_t entry = line % in.entries;
  float sum = 0;
  for (int f = lane_of_warp(); f < in.size; f += kWarp) {
    float difference = in.v_bias == nullptr ? 0.0F : in.v_bias[head * in.size + f];
    if (in.u != nullptr) difference -= in.u[head * in.size + f];
    sum += difference * static_cast<float>(in.r[(entry * in.heads + head) * in.size + f]);
  }
  sum = warp_sum(sum);
  if (in.bias != nullptr) sum += in.bias[line] / in.scale;
  if (lane_of_warp() == 0) biases[line] = sum;
}

}  // namespace

AttentionOperands<bfloat16> with_term_biases(const Tensor& biases, const AttentionOperands<bfloat16>& in) {
  const int64_t lines = static_cast<int64_t>(in.heads) * in.entries;
  launch(term_biases_kernel, dim3(static_cast<unsigned>(ceil_div(lines, kWarps))), kBlock, 0, biases.data<float>(), in);
  AttentionOperands<bfloat16> to = in;
  to.bias = biases.data<float>();
  return to;
}

}  // namespace quire::cuda
