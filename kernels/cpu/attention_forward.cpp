#include "kernels/cpu/attention_blocks.h"

namespace quire::cpu {

namespace {

template <typename T>
void forward_block(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in, const AttentionSizes& s,
                   const PositionTerms<T>& tables, int64_t row, int64_t head, int64_t first_query) {
  QueryBlock<T> block(in, s, tables, row, head, first_query);
  const int64_t count = block.count();
  T* const sums = scratch<T>(5, kQueryBlock);
  T* const tops = scratch<T>(6, kQueryBlock);
  T* const corrections = scratch<T>(7, kQueryBlock);
  std::fill(sums, sums + kQueryBlock, T{0});
  std::fill(tops, tops + kQueryBlock, std::numeric_limits<T>::lowest());  // finite: the difference of two is no NaN
  T* const total = scratch<T>(8, kQueryBlock * s.value_size);
  std::fill(total, total + count * s.value_size, T{0});
  block.for_visible_blocks([&](const KeyBlock& keys) {
    T* const p = block.logits(keys);
    for (int64_t a = 0; a < block.lanes(); a += kLanes<T>) {
      const Vector<T> before = load_vector(tops + a);
      Vector<T> top = before;
      for (int64_t j = 0; j < keys.count; ++j) top = larger<T>(top, load_vector(p + j * kQueryBlock + a));
      const Vector<T> correction = exponential<T>(before - top);
      Vector<T> sum = load_vector(sums + a) * correction;
      for (int64_t j = 0; j < keys.count; ++j) {
        T* const x = p + j * kQueryBlock + a;
        const Vector<T> value = exponential<T>(load_vector(x) - top);
        store_vector(x, value);
        sum += value;
      }
      store_vector(corrections + a, correction);
      store_vector(tops + a, top);
      store_vector(sums + a, sum);
    }
    for (int64_t a = 0; a < count; ++a) {
      if (corrections[a] != T{1}) ArrayView<T>(total + a * s.value_size, s.value_size) *= corrections[a];
    }
    if (in.dropout > 0) block.apply_dropout(p, keys);
    block_product(total, s.value_size, Operand<T>{p, kQueryBlock, true}, block.values(keys), block.value_stride(),
                  count, s.value_size, keys.count, true);
  });
  T* to = out.data<T>() + ((row * s.queries + first_query) * s.heads + head) * s.value_size;
  T* log_sum = lse.data<T>() + (row * s.heads + head) * s.queries + first_query;
  for (int64_t a = 0; a < count; ++a) {
    const T inverse = sums[a] > T{0} ? T{1} / sums[a] : T{0};
    ArrayView<T>(to + a * s.heads * s.value_size, s.value_size) =
        ConstArrayView<T>(total + a * s.value_size, s.value_size) * inverse;
    log_sum[a] = sums[a] > T{0} ? tops[a] + std::log(sums[a]) : -std::numeric_limits<T>::infinity();
  }
}

void attention(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  const AttentionSizes s(in);
  check_attention(s, out, lse, in);
  dispatch("attention", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const PositionTerms<T> tables(in, s);
    const int64_t blocks = ceil_div(s.queries, kQueryBlock);
    parallel_for(s.rows * s.heads * blocks, [&](int64_t tile) {
      forward_block<T>(out, lse, in, s, tables, tile / (s.heads * blocks), tile / blocks % s.heads,
                       tile % blocks * kQueryBlock);
    });
  });
}

}  // namespace

void bind_attention_forward() {
  ops::attention.bind(DeviceKind::cpu, attention);
}

}  // namespace quire::cpu
