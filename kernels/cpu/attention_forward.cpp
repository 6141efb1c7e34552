#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/online_softmax.h"

namespace quire::cpu {

namespace {

template <typename T>
void forward_block(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in, const AttentionSizes& s,
                   const PositionTerms<T>& tables, int64_t row, int64_t head, int64_t first_query) {
  QueryBlock<T> block(in, s, tables, row, head, first_query);
  const int64_t count = block.count();
  T* const sums = scratch<T>(5, kQueryBlock);
  T* const tops = scratch<T>(6, kQueryBlock);
  const OnlineSoftmax<T> softmax{sums, tops, scratch<T>(7, kQueryBlock)};
  std::fill(sums, sums + kQueryBlock, T{0});
  std::fill(tops, tops + kQueryBlock, std::numeric_limits<T>::lowest());
  T* const total = scratch<T>(8, kQueryBlock * s.value_size);
  std::fill(total, total + count * s.value_size, T{0});
  block.for_visible_blocks([&](const KeyBlock& keys) {
    T* const p = block.logits(keys);
    softmax.take(p, kQueryBlock, keys.count, block.lanes());
    softmax.correct(total, count, s.value_size);
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
