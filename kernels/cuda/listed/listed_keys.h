// The gradients of listed attention that are sums over queries: of keys, values and weights. Those of keys and values
// go over the pairs of a query and head and an entry of its list, sorted by block and key head.
#pragma once

#include "kernels/cuda/listed/listed_mma.h"

namespace quire::cuda {

template <typename T>
struct ListGradients {
  using A = Wide<T>;
  const T* dout;
  const A *lse, *inner;     // [R, H, T, K] with weights; lse [R, H, T] without
  const A *delta, *dlse;    // [R, H, T], without weights; dlse may be null
  const int32_t* of_place;  // block * key heads + key head of all pairs, sorted
  const int32_t* of_pair;   // the pairs themselves: line * K + n
  int64_t pairs;
};

// The terms of a pair in the gradients of a key: with the logit s, p = share * exp(s - log_sum) and p (dp - taken).
template <typename A>
struct PairTerms {
  A share, log_sum, taken;
};

template <typename T, typename S>
__device__ inline PairTerms<Wide<T>> terms_of(const ListedOperands<T, S>& in, const ListGradients<T>& back,
                                              int64_t pair) {
  using A = Wide<T>;
  const int64_t line = pair / in.chosen, query = in.lse_of(line);
  const int n = static_cast<int>(pair % in.chosen);
  const A log_sum = back.lse[in.is_weighted() ? query * in.chosen + n : query];
  // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
  const A finite = log_sum == -std::numeric_limits<A>::infinity() ? A{0} : log_sum;
  if (in.is_weighted()) return {in.weight[in.weight_of(line, n)], finite, back.inner[query * in.chosen + n]};
  return {A{1}, finite, back.delta[query] - (back.dlse != nullptr ? back.dlse[query] : A{0})};
}

// Returns the first of the sorted pairs whose place is not below `place`.
template <typename T>
__device__ inline int64_t first_pair(const ListGradients<T>& back, int64_t place) {
  int64_t low = 0;
  int64_t high = back.pairs;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (back.of_place[middle] < place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Computes the gradients of keys, values and weights that are defined.
void sums_over_queries(const ops::ListedAttentionGradients& gradients, const ListBackwardScratch& scratch,
                       const Tensor& dout, const Tensor& dlse, const Tensor& out, const Tensor& lse,
                       const ops::ListedAttentionInputs& in, const ListedSizes& sizes);
// Those of keys and values, of stored blocks or of those of the pass.
void key_gradients_on_tensor_cores(const Tensor& dkeys, const Tensor& dvalues, bool own, const ListedInBf16& in,
                                   const ListGradients<bfloat16>& back);

}  // namespace quire::cuda
