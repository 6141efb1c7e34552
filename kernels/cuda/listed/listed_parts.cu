// Sorts entries by block before listed attention on tensor cores, and combines those of a line after it (listed_mma.h).
#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/listed/listed_mma.h"
#include "kernels/cuda/listed/listed_query.h"
#include "kernels/cuda/mma_tiles.h"
#include "kernels/cuda/sort.h"

namespace quire::cuda {

namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int kMaxFeatures = 128;

__global__ void number_entries_kernel(int32_t* place, int32_t* entry, ListedInBf16 in, int64_t first_line, int count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t line = first_line + i / in.chosen;
    const int64_t block = in.block_of(line, static_cast<int>(i % in.chosen));
    const int64_t kv_head = line % in.heads / (in.heads / in.kv_heads);
    place[i] = static_cast<int32_t>(block < 0 ? in.all_blocks * in.kv_heads : block * in.kv_heads + kv_head);
    entry[i] = static_cast<int32_t>(i);
  }
}

// A warp combines the entries of a line with their shares, a softmax over the gates, or with their weights.
__global__ void join_parts_kernel(bfloat16* out, float* lse, float* mass, const float* parts, const float* gates,
                                  ListedInBf16 in, int64_t first_line, int64_t lines) {
  const int64_t of_slice = first_element() / kWarp;
  if (of_slice >= lines) return;  // whole warps return
  const int64_t line = first_line + of_slice;
  const int64_t first = of_slice * in.chosen;
  const int lane = lane_of_warp();
  float top = std::numeric_limits<float>::lowest();
  float* const by_block = in.is_weighted() ? lse : mass;
  for (int n = lane; n < in.chosen; n += kWarp) {
    const bool there = in.block_of(line, n) >= 0;
    const float gate = there ? gates[first + n] : kNothing;
    if (by_block != nullptr) {
      by_block[in.lse_of(line) * in.chosen + n] = there ? gate * kLn2 : (in.is_weighted() ? 0.0F : kNothing);
    }
    if (!there) continue;
    top = gate > top || gate != gate ? gate : top;
  }
  top = warp_max(top);
  float sum = 0;
  float total[kMaxFeatures / kWarp] = {};
  for (int n = 0; n < in.chosen; ++n) {
    if (in.block_of(line, n) < 0 || gates[first + n] == kNothing) continue;
    const float share = in.is_weighted() ? in.weight[in.weight_of(line, n)] : exp2f(gates[first + n] - top);
    sum += share;
    const float* const part = parts + (first + n) * in.value_size;
#pragma unroll
    for (int i = 0; i < kMaxFeatures / kWarp; ++i) {
      const int f = i * kWarp + lane;
      if (f < in.value_size) total[i] += share * part[f];
    }
  }
  const float factor = in.is_weighted() ? 1.0F : (sum == 0 ? 0.0F : 1 / sum);
#pragma unroll
  for (int i = 0; i < kMaxFeatures / kWarp; ++i) {
    const int f = i * kWarp + lane;
    if (f < in.value_size) out[line * in.value_size + f] = narrow<bfloat16>(total[i] * factor);
  }
  if (lane == 0 && !in.is_weighted()) lse[in.lse_of(line)] = sum == 0 ? kNothing : (top + log2f(sum)) * kLn2;
}

// A warp sums, for one line, the gradients of its entries' queries, rotated back.
__global__ void sum_gradients_kernel(bfloat16* dq, const float* parts, ListedInBf16 in, int64_t first_line,
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
void for_each_slice(const ListedScratch& scratch, const ListedInBf16& in, Function&& function) {
  for (int64_t first = 0; first < in.lines; first += scratch.lines) {
    const int64_t lines = in.lines - first < scratch.lines ? in.lines - first : scratch.lines;
    function(sort_entries(scratch, in, first, lines), first, lines);
  }
}

}  // namespace

ListedEntries sort_entries(const ListedScratch& scratch, const ListedInBf16& in, int64_t first_line, int64_t lines) {
  const int64_t count = lines * in.chosen;
  const auto part = [&](int64_t n) { return scratch.entries.select(0, n).slice(0, 0, count); };
  launch(number_entries_kernel, blocks_for(count), kBlock, 0, part(2).data<int32_t>(), part(3).data<int32_t>(), in,
         first_line, static_cast<int>(count));
  sort_pairs(part(0), part(1), part(2), part(3), bits_of(in.all_blocks * in.kv_heads));
  return {part(0).data<int32_t>(), part(1).data<int32_t>(), static_cast<int>(count), first_line};
}

void attend_on_tensor_cores(const Tensor& out, const Tensor& lse, const Tensor& mass,
                            const ops::ListedAttentionInputs& given, const ListedSizes& s) {
  const ListedInBf16 in(given, s);
  const ListedScratch scratch(s, given, false);
  float* const parts = scratch.parts.data<float>();
  float* const gates = scratch.gates.data<float>();
  for_each_slice(scratch, in, [&](const ListedEntries& entries, int64_t first, int64_t lines) {
    attend_to_blocks(parts, gates, in, entries);
    launch(join_parts_kernel, blocks_of(lines), kBlock, 0, out.data<bfloat16>(), lse.data<float>(),
           writable_or_null<float>(mass), parts, gates, in, first, lines);
  });
}

void query_gradient_on_tensor_cores(const Tensor& dq, const Tensor& inner, const Tensor& dout, const Tensor& dlse,
                                    const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& given,
                                    const ListedSizes& s) {
  const ListedInBf16 in(given, s);
  const ListedScratch scratch(s, given, true);
  if (!given.weight.defined()) launch_delta<bfloat16>(scratch.delta, dout, out);
  const ListedBackward back{dout.data<bfloat16>(), lse.data<float>(), data_or_null<float>(scratch.delta),
                            data_or_null<float>(dlse), writable_or_null<float>(inner)};
  float* const parts = scratch.parts.data<float>();
  for_each_slice(scratch, in, [&](const ListedEntries& entries, int64_t first, int64_t lines) {
    gradients_by_block(parts, in, entries, back);
    if (!dq.defined()) return;
    launch(sum_gradients_kernel, blocks_of(lines), kBlock, size_t{3} * (kBlock / kWarp) * in.size * sizeof(float),
           dq.data<bfloat16>(), parts, in, first, lines);
  });
}

}  // namespace quire::cuda
