#include "kernels/cuda/listed/listed_keys.h"

#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/listed/listed_query.h"
#include "kernels/cuda/sort.h"

namespace quire::cuda {

namespace {

// Numbers the pairs for the sort. Those without a block come behind all others.
template <typename T, typename S>
__global__ void number_pairs_kernel(int32_t* place, int32_t* pair, ListedOperands<T, S> in, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t block = in.block_of(i / in.chosen, static_cast<int>(i % in.chosen));
    const int64_t own = block < 0 ? in.all_blocks * in.kv_heads : block * in.kv_heads + in.kv_head_of(i / in.chosen);
    place[i] = static_cast<int32_t>(own);
    pair[i] = static_cast<int32_t>(i);
  }
}

// A block sums P dw over the queries and all heads of one list.
template <typename T, typename S>
__global__ void list_weight_kernel(Wide<T>* dweight, ListedOperands<T, S> in, const Wide<T>* inner) {
  using A = Wide<T>;
  __shared__ A partial[kBlock / kWarp];
  const int64_t list = blockIdx.x, row = list / in.lists;
  for (int n = 0; n < in.chosen; ++n) {
    const int64_t entry = list * in.chosen + n;
    A sum = 0;
    if (in.block_at(entry) >= 0) {
      for (int i = static_cast<int>(threadIdx.x); i < in.queries * in.heads; i += kBlock) {
        const int t = i % in.queries;
        const int64_t own = in.list == nullptr ? t : in.list[row * in.queries + t];
        if (own == list % in.lists) sum += inner[((row * in.heads + i / in.queries) * in.queries + t) * in.chosen + n];
      }
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) dweight[entry] = sum;
  }
}

template <typename T, typename S>
__global__ void query_weight_kernel(Wide<T>* dweight, ListedOperands<T, S> in, const Wide<T>* inner, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t line = i / in.width;
    const int n = static_cast<int>(i % in.width);
    const bool read = n < in.chosen && in.block_of(line, n) >= 0;
    dweight[in.lse_of(line) * in.width + n] = read ? inner[in.lse_of(line) * in.chosen + n] : Wide<T>{0};
  }
}

// A warp takes a key of a block and a key head, and the pairs that read it one after the other. X: the type of the
// keys.
template <typename X, typename T, typename S>
__global__ void __launch_bounds__(kBlock, 2)
    key_gradient_kernel(X* dkeys, X* dvalues, bool own, ListedOperands<T, S> in, ListGradients<T> back, int numbers) {
  using A = Wide<T>;
  WarpVectors<A> vectors(numbers);
  A* const q = vectors.take(in.size);
  A* const rotated = vectors.take(in.size);
  A* const of_key = vectors.take(in.size);
  A* const of_value = vectors.take(in.value_size);
  const int lane = lane_of_warp();
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  const int kv_head = static_cast<int>(vector % in.kv_heads), j = static_cast<int>(vector / in.kv_heads % in.length);
  const int64_t block = vector / in.kv_heads / in.length + (own ? in.blocks : 0);
  if (block >= (own ? in.all_blocks : in.blocks) || j >= in.length_of(block)) return;  // whole warps return
  const int64_t place = block * in.kv_heads + kv_head;
  const int64_t first = first_pair(back, place);
  if (first == back.pairs || back.of_place[first] != place) return;
  for (int f = lane; f < in.size; f += kWarp) of_key[f] = 0;
  for (int f = lane; f < in.value_size; f += kWarp) of_value[f] = 0;
  const int64_t at = in.first_vector(block, kv_head) + int64_t{j} * in.kv_heads;
  in.with_block(block, kv_head, [&](const auto& lines) {
    for (int64_t i = first; i < back.pairs && back.of_place[i] == place; ++i) {
      const int64_t pair = back.of_pair[i], line = pair / in.chosen;
      __syncwarp();
      load_query(q, in, line);
      rotate_vector(rotated, q, in.angles_of(line, static_cast<int>(pair % in.chosen)), in.pairs, in.size, false,
                    in.interleaved);
      const T* const dy = back.dout + line * in.value_size;
      const PairTerms<A> terms = terms_of(in, back, pair);
      const A p = terms.share * std::exp(dot<A>(rotated, lines.key(j), in.size) - terms.log_sum);
      const A ds = p * (dot<A>(dy, lines.value(j), in.value_size) - terms.taken);
      for (int f = lane; f < in.size; f += kWarp) of_key[f] += ds * rotated[f];
      for (int f = lane; f < in.value_size; f += kWarp) of_value[f] += p * number<A>(dy[f]);
    }
  });
  for (int f = lane; f < in.size && dkeys != nullptr; f += kWarp) dkeys[at * in.size + f] = narrow<X>(of_key[f]);
  for (int f = lane; f < in.value_size && dvalues != nullptr; f += kWarp) {
    dvalues[at * in.value_size + f] = narrow<X>(of_value[f]);
  }
}

}  // namespace

void sums_over_queries(const ops::ListedAttentionGradients& g, const ListBackwardScratch& scratch, const Tensor& dout,
                       const Tensor& dlse, const Tensor& out, const Tensor& lse, const ops::ListedAttentionInputs& in,
                       const ListedSizes& s) {
  for (const Tensor* gradient : {&g.dkeys, &g.dvalues, &g.down_keys, &g.down_values}) {
    if (gradient->defined()) gradient->zero();
  }
  dispatch_stored(in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using A = Wide<T>;
    const ListedOperands<T, S> operands(in, s);
    if (g.dweight.defined() && operands.of_lists) {
      launch(list_weight_kernel<T, S>, dim3(static_cast<unsigned>(s.rows * s.lists)), kBlock, 0, g.dweight.data<A>(),
             operands, scratch.inner.data<A>());
    } else if (g.dweight.defined()) {
      const int64_t count = operands.lines * s.width;
      launch(query_weight_kernel<T, S>, blocks_for(count), kBlock, 0, g.dweight.data<A>(), operands,
             scratch.inner.data<A>(), count);
    }
    if (!scratch.entries.defined() || scratch.entries.dim(1) == 0) return;
    const int64_t count = scratch.entries.dim(1);
    const auto part = [&](int64_t n) { return scratch.entries.select(0, n); };
    launch(number_pairs_kernel<T, S>, blocks_for(count), kBlock, 0, part(2).template data<int32_t>(),
           part(3).template data<int32_t>(), operands, count);
    sort_pairs(part(0), part(1), part(2), part(3), bits_of(operands.all_blocks * s.kv_heads));
    if (scratch.delta.defined()) launch_delta<T>(scratch.delta, dout, out);
    const ListGradients<T> back{dout.data<T>(),
                                lse.data<A>(),
                                data_or_null<A>(scratch.inner),
                                data_or_null<A>(scratch.delta),
                                data_or_null<A>(dlse),
                                part(0).template data<int32_t>(),
                                part(1).template data<int32_t>(),
                                count};
    const auto compute = [&](auto kind, const Tensor& dkeys, const Tensor& dvalues, bool own, int64_t blocks_of_kind) {
      using X = decltype(kind);
      if ((!dkeys.defined() && !dvalues.defined()) || blocks_of_kind == 0) return;
      if constexpr (std::is_same_v<T, bfloat16>) {
        // Queries are not rotated for blocks of the pass.
        if (gradients_suit_tensor_cores(g, dout, in, s) && (own || !in.table.defined())) {
          return key_gradients_on_tensor_cores(dkeys, dvalues, own, operands, back);
        }
      }
      launch_warps<A>(blocks_of_kind * s.length * s.kv_heads, 3 * s.size + s.value_size,
                      [&](dim3 blocks, int threads, size_t bytes, int numbers) {
                        launch(key_gradient_kernel<X, T, S>, blocks, threads, bytes, writable_or_null<X>(dkeys),
                               writable_or_null<X>(dvalues), own, operands, back, numbers);
                      });
    };
    compute(stored, g.dkeys, g.dvalues, false, s.blocks);
    compute(type, g.down_keys, g.down_values, true, s.own_blocks);
  });
}

}  // namespace quire::cuda
