#include "kernels/cuda/listed/listed_keys.h"

#include "kernels/cuda/listed/listed_query.h"
#include "kernels/cuda/sort.h"

namespace quire::cuda {

namespace {

// A block takes one row: ranges [R, G, 2] gets the first query of each list and the one behind its last.
__global__ void range_of_lists_kernel(int32_t* ranges, const int32_t* list, int queries, int lists) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t* const numbers = list + static_cast<int64_t>(blockIdx.x) * queries;
  int32_t* const own = ranges + static_cast<int64_t>(blockIdx.x) * lists * 2;
  for (int i = thread; i < 2 * lists; i += kBlock) own[i] = 0;
  __syncthreads();
  for (int t = thread; t < queries; t += kBlock) {
    const int number = numbers[t];
    if (number < 0 || number >= lists) continue;
    // When a list's queries are not consecutive, the last run of them counts, in whatever order threads come.
    if (t == 0 || numbers[t - 1] != number) atomicMax(&own[2 * number], t);
    if (t + 1 == queries || numbers[t + 1] != number) atomicMax(&own[2 * number + 1], t + 1);
  }
}

// Numbers the entries for the sort. Entries without a block come behind all others.
template <typename T, typename S>
__global__ void number_entries_kernel(int32_t* block, int32_t* entry, ListedOperands<T, S> in, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t own = in.block_at(i);
    block[i] = static_cast<int32_t>(own < 0 ? in.blocks : own);
    entry[i] = static_cast<int32_t>(i);
  }
}

// A block sums P dw over the queries and all heads of one list.
template <typename T, typename S>
__global__ void weight_gradient_kernel(Wide<T>* dweight, ListedOperands<T, S> in, ListGradients<T> back) {
  using A = Wide<T>;
  __shared__ A partial[kBlock / kWarp];
  const int64_t list = blockIdx.x;
  const int first = back.ranges[2 * list];
  const int count = back.ranges[2 * list + 1] > first ? back.ranges[2 * list + 1] - first : 0;
  for (int n = 0; n < in.chosen; ++n) {
    const int64_t entry = list * in.chosen + n;
    A sum = 0;
    if (in.block_at(entry) >= 0) {
      for (int i = static_cast<int>(threadIdx.x); i < count * in.heads; i += kBlock) {
        const int64_t of_head = (list / in.lists * in.heads + i / count) * in.queries;
        sum += back.inner[(of_head + first + i % count) * in.chosen + n];
      }
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) dweight[entry] = sum;
  }
}

// A warp takes a key and a key head, and 32 queries that read it at a time. With D = sum of P dw, the gradient of a
// logit is weight * P (dw - D).
template <typename T>
__global__ void __launch_bounds__(kBlock, 2)
    key_gradient_kernel(T* dkeys, T* dvalues, ListedOperands<T, T> in, ListGradients<T> back, int numbers) {
  using A = Wide<T>;
  WarpVectors<A> vectors(numbers);
  A* const key = vectors.take(in.size);
  A* const value = vectors.take(in.value_size);
  A* const of_key = vectors.take(in.size);
  A* const of_value = vectors.take(in.value_size);
  A* const gradients = vectors.take(kWarp);
  A* const weights = vectors.take(kWarp);
  const int lane = lane_of_warp();
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (vector >= in.blocks * in.length * in.kv_heads) return;  // whole warps return, and the block has no barrier
  const int64_t block = vector / in.kv_heads / in.length;
  const int group = in.heads / in.kv_heads;
  const int first_head = static_cast<int>(vector % in.kv_heads) * group;
  for (int f = lane; f < in.size; f += kWarp) {
    key[f] = number<A>(in.keys[vector * in.size + f]) * in.scale;
    of_key[f] = 0;
  }
  for (int f = lane; f < in.value_size; f += kWarp) {
    value[f] = number<A>(in.values[vector * in.value_size + f]);
    of_value[f] = 0;
  }
  __syncwarp();
  const int64_t stride = int64_t{in.heads} * in.size;
  const int64_t value_stride = int64_t{in.heads} * in.value_size;
  for (int64_t i = first_entry(back, block); i < back.entries && back.of_block[i] == block; ++i) {
    const ListedBlock at = listed_block(in, back, i);
    for (int head = first_head; head < first_head + group; ++head) {
      for (int first = at.first; first < at.end; first += kWarp) {
        const int count = at.end - first < kWarp ? at.end - first : kWarp;
        const int64_t line = (at.row * in.queries + first) * in.heads + head;
        const T* const q = in.q + line * in.size;
        const T* const dy = back.dout + line * in.value_size;
        const A logit = dots<A>(key, q, count, stride, in.size);
        const A dw = dots<A>(value, dy, count, value_stride, in.value_size);
        const int64_t of_query = (in.lse_of(line) + (lane < count ? lane : 0)) * in.chosen + at.n;
        // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
        const A log_sum = back.lse[of_query] == -std::numeric_limits<A>::infinity() ? A{0} : back.lse[of_query];
        weights[lane] = lane < count ? in.weight[at.entry] * std::exp(logit - log_sum) : A{0};
        gradients[lane] = weights[lane] * (dw - back.inner[of_query]) * in.scale;
        __syncwarp();
        for (int f = lane; f < in.size; f += kWarp) {
          A more = 0;
          for (int j = 0; j < count; ++j) more += gradients[j] * number<A>(q[j * stride + f]);
          of_key[f] += more;
        }
        for (int f = lane; f < in.value_size; f += kWarp) {
          A more = 0;
          for (int j = 0; j < count; ++j) more += weights[j] * number<A>(dy[j * value_stride + f]);
          of_value[f] += more;
        }
        __syncwarp();
      }
    }
  }
  for (int f = lane; f < in.size && dkeys != nullptr; f += kWarp) dkeys[vector * in.size + f] = narrow<T>(of_key[f]);
  for (int f = lane; f < in.value_size && dvalues != nullptr; f += kWarp) {
    dvalues[vector * in.value_size + f] = narrow<T>(of_value[f]);
  }
}

}  // namespace

void list_gradients(const ops::ListedAttentionGradients& g, const ListBackwardScratch& scratch, const Tensor& dout,
                    const Tensor& lse, const ops::ListedAttentionInputs& in, const ListedSizes& s) {
  launch(range_of_lists_kernel, dim3(static_cast<unsigned>(s.rows)), kBlock, 0, scratch.ranges.data<int32_t>(),
         in.list.data<int32_t>(), static_cast<int>(s.queries), static_cast<int>(s.lists));
  dispatch_stored(in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using A = Wide<T>;
    const ListedOperands<T, S> operands(in, s);
    const int64_t count = in.blocks.numel();
    const auto part = [&](int64_t n) { return scratch.entries.select(0, n); };
    const bool keys = scratch.entries.defined();
    const ListGradients<T> back{dout.data<T>(),
                                lse.data<A>(),
                                scratch.inner.data<A>(),
                                scratch.ranges.data<int32_t>(),
                                keys ? part(0).template data<int32_t>() : nullptr,
                                keys ? part(1).template data<int32_t>() : nullptr,
                                count};
    if (g.dweight.defined()) {
      launch(weight_gradient_kernel<T, S>, dim3(static_cast<unsigned>(s.rows * s.lists)), kBlock, 0,
             g.dweight.data<A>(), operands, back);
    }
    if constexpr (std::is_same_v<S, T>) {
      if (!keys) return;
      if (count > 0) {
        launch(number_entries_kernel<T, S>, blocks_for(count), kBlock, 0, part(2).template data<int32_t>(),
               part(3).template data<int32_t>(), operands, count);
        sort_pairs(part(0), part(1), part(2), part(3), bits_of(s.blocks));
      }
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (gradients_suit_tensor_cores(g, dout, in, s)) {
          return key_gradients_on_tensor_cores(g.dkeys, g.dvalues, operands, back);
        }
      }
      launch_warps<A>(s.blocks * s.length * s.kv_heads, 2 * s.size + 2 * s.value_size + 2 * kWarp,
                      [&](dim3 blocks, int threads, size_t bytes, int numbers) {
                        launch(key_gradient_kernel<T>, blocks, threads, bytes, writable_or_null<T>(g.dkeys),
                               writable_or_null<T>(g.dvalues), operands, back, numbers);
                      });
    }
  });
}

}  // namespace quire::cuda
