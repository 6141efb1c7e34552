// Sorts entries by block before attention to stored blocks on tensor cores, and combines those of a line after it
// (stored_mma.h).
#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/blocks/stored_blocks.h"
#include "kernels/cuda/blocks/stored_mma.h"
#include "kernels/cuda/sort.h"

namespace quire::cuda {

namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int kMaxFeatures = 128;

__global__ void number_entries_kernel(int32_t* place, int32_t* entry, StoredInBf16 in, int64_t first_line, int count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t line = first_line + i / in.chosen;
    const int64_t block = in.block_of(line, static_cast<int>(i % in.chosen));
    const int64_t kv_head = line % in.heads / (in.heads / in.kv_heads);
    place[i] = static_cast<int32_t>(block < 0 ? in.slots * in.kv_heads : block * in.kv_heads + kv_head);
    entry[i] = static_cast<int32_t>(i);
  }
}

// A warp combines the entries of a line with their shares, a softmax over the gates.
__global__ void join_parts_kernel(bfloat16* out, float* lse, const float* parts, const float* gates, StoredInBf16 in,
                                  int64_t first_line, int64_t lines) {
  const int64_t of_slice = first_element() / kWarp;
  if (of_slice >= lines) return;  // whole warps return
  const int64_t line = first_line + of_slice;
  const int64_t first = of_slice * in.chosen;
  const int lane = lane_of_warp();
  float top = std::numeric_limits<float>::lowest();
  for (int n = lane; n < in.chosen; n += kWarp) {
    if (in.block_of(line, n) < 0) continue;
    const float gate = gates[first + n];
    top = gate > top || gate != gate ? gate : top;
  }
  top = warp_max(top);
  float sum = 0;
  float total[kMaxFeatures / kWarp] = {};
  for (int n = 0; n < in.chosen; ++n) {
    if (in.block_of(line, n) < 0 || gates[first + n] == kNothing) continue;
    const float share = exp2f(gates[first + n] - top);
    sum += share;
    const float* const part = parts + (first + n) * in.value_size;
#pragma unroll
    for (int i = 0; i < kMaxFeatures / kWarp; ++i) {
      const int f = i * kWarp + lane;
      if (f < in.value_size) total[i] += share * part[f];
    }
  }
  const float factor = sum == 0 ? 0.0F : 1 / sum;
#pragma unroll
  for (int i = 0; i < kMaxFeatures / kWarp; ++i) {
    const int f = i * kWarp + lane;
    if (f < in.value_size) out[line * in.value_size + f] = narrow<bfloat16>(total[i] * factor);
  }
  constexpr float kLn2 = 0.6931471805599453F;
  if (lane == 0) lse[in.lse_of(line)] = sum == 0 ? kNothing : (top + log2f(sum)) * kLn2;
}

// A warp sums, for one line, the gradients of its entries' queries, rotated back.
__global__ void sum_gradients_kernel(bfloat16* dq, const float* parts, StoredInBf16 in, int64_t first_line,
                                     int64_t lines) {
  WarpVectors<float> vectors(3 * in.size);
  float* const total = vectors.take(in.size);
  float* const rotated = vectors.take(in.size);
  float* const part = vectors.take(in.size);
  const int64_t of_slice = first_element() / kWarp;
  if (of_slice >= lines) return;  // whole warps return, and the block has no barrier
  const int64_t line = first_line + of_slice;
  const int lane = lane_of_warp();
  for (int f = lane; f < in.size; f += kWarp) total[f] = 0;  // each lane has its own features
  for (int n = 0; n < in.chosen; ++n) {
    if (in.block_of(line, n) < 0) continue;
    for (int f = lane; f < in.size; f += kWarp) part[f] = parts[(of_slice * in.chosen + n) * in.size + f];
    __syncwarp();
    rotate_vector(rotated, part, in.angles_of(line, n), in.pairs, in.size, true, in.interleaved);
    for (int f = lane; f < in.size; f += kWarp) total[f] += rotated[f];
    __syncwarp();
  }
  for (int f = lane; f < in.size; f += kWarp) dq[line * in.size + f] = narrow<bfloat16>(total[f] * in.scale);
}

dim3 blocks_of(int64_t lines) {
  return dim3(static_cast<unsigned>(ceil_div(lines, kBlock / kWarp)));
}

// Calls function(entries, first line, lines) for each slice.
template <typename Function>
void for_each_slice(const StoredScratch& scratch, const StoredInBf16& in, Function&& function) {
  for (int64_t first = 0; first < in.lines; first += scratch.lines) {
    const int64_t lines = in.lines - first < scratch.lines ? in.lines - first : scratch.lines;
    function(sort_entries(scratch, in, first, lines), first, lines);
  }
}

}  // namespace

StoredEntries sort_entries(const StoredScratch& scratch, const StoredInBf16& in, int64_t first_line, int64_t lines) {
  const int64_t count = lines * in.chosen;
  const auto part = [&](int64_t n) { return scratch.entries.select(0, n).slice(0, 0, count); };
  launch(number_entries_kernel, blocks_for(count), kBlock, 0, part(2).data<int32_t>(), part(3).data<int32_t>(), in,
         first_line, static_cast<int>(count));
  sort_pairs(part(0), part(1), part(2), part(3), bits_of(in.slots * in.kv_heads));
  return {part(0).data<int32_t>(), part(1).data<int32_t>(), static_cast<int>(count), first_line};
}

void stored_on_tensor_cores(const Tensor& out, const Tensor& lse, const ops::StoredAttentionInputs& given,
                            const StoredSizes& s) {
  const StoredInBf16 in(given, s);
  const StoredScratch scratch(s, given, false);
  float* const parts = scratch.parts.data<float>();
  float* const gates = scratch.gates.data<float>();
  for_each_slice(scratch, in, [&](const StoredEntries& entries, int64_t first, int64_t lines) {
    attend_to_blocks(parts, gates, in, entries);
    launch(join_parts_kernel, blocks_of(lines), kBlock, 0, out.data<bfloat16>(), lse.data<float>(), parts, gates, in,
           first, lines);
  });
}

void stored_backward_on_tensor_cores(const Tensor& dq, const Tensor& dout, const Tensor& dlse, const Tensor& out,
                                     const Tensor& lse, const ops::StoredAttentionInputs& given, const StoredSizes& s) {
  const StoredInBf16 in(given, s);
  const StoredScratch scratch(s, given, true);
  launch_delta<bfloat16>(scratch.delta, dout, out);
  const StoredBackward back{dout.data<bfloat16>(), lse.data<float>(), scratch.delta.data<float>(),
                            data_or_null<float>(dlse)};
  float* const parts = scratch.parts.data<float>();
  for_each_slice(scratch, in, [&](const StoredEntries& entries, int64_t first, int64_t lines) {
    gradients_by_block(parts, in, entries, back);
    launch(sum_gradients_kernel, blocks_of(lines), kBlock, size_t{3} * (kBlock / kWarp) * in.size * sizeof(float),
           dq.data<bfloat16>(), parts, in, first, lines);
  });
}

}  // namespace quire::cuda
