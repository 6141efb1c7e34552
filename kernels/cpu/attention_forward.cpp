#include "kernels/cpu/attention_blocks.h"

namespace quire::cpu {

namespace {

template <typename T>
void forward_block(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in, const AttentionSizes& s,
                   int64_t row, int64_t head, int64_t first_query) {
  QueryBlock<T> block(in, s, row, head, first_query);
  const int64_t count = block.count();
  T* sums = scratch<T>(4, kQueryBlock);
  T* tops = scratch<T>(5, kQueryBlock);
  std::fill(sums, sums + count, T{0});
  std::fill(tops, tops + count, -std::numeric_limits<T>::infinity());
  MatrixView<T> total(scratch<T>(6, kQueryBlock * s.value_size), count, s.value_size,
                      Eigen::OuterStride<>(s.value_size));
  total.setZero();
  if (!block.empty()) {
    const int64_t ring_head = s.slots > 0 ? in.cache_head.data<int32_t>()[row] : 0;
    for_key_blocks(block.low(), block.high(), s.slots, ring_head, [&](const KeyBlock& keys) {
      MatrixView<T> p = block.logits(keys);
      for (int64_t a = 0; a < count; ++a) {
        T* const line = p.data() + a * kKeyBlock;
        const int64_t begin = block.column_begin(a, keys);
        const int64_t end = block.column_end(a, keys);
        if (begin >= end) {
          std::fill(line, line + keys.count, T{0});
          continue;
        }
        ArrayView<T> visible(line + begin, end - begin);
        const T top = std::max(tops[a], visible.maxCoeff());
        const T correction = std::exp(tops[a] - top);
        visible = (visible - top).exp();
        sums[a] = sums[a] * correction + visible.sum();
        if (correction != T{1}) total.row(a) *= correction;
        tops[a] = top;
        std::fill(line, line + begin, T{0});
        std::fill(line + end, line + keys.count, T{0});
        if (in.dropout > 0) block.apply_dropout(line, a, keys);
      }
      total.noalias() += p * block.values(keys);
    });
  }
  T* to = out.data<T>() + ((row * s.queries + first_query) * s.heads + head) * s.value_size;
  T* log_sum = lse.data<T>() + (row * s.heads + head) * s.queries + first_query;
  for (int64_t a = 0; a < count; ++a) {
    const T inverse = sums[a] > T{0} ? T{1} / sums[a] : T{0};
    ArrayView<T>(to + a * s.heads * s.value_size, s.value_size) =
        ConstArrayView<T>(total.data() + a * s.value_size, s.value_size) * inverse;
    log_sum[a] = sums[a] > T{0} ? tops[a] + std::log(sums[a]) : -std::numeric_limits<T>::infinity();
  }
}

void attention(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  const AttentionSizes s(in);
  QUIRE_CHECK(out.shape() == Shape({s.rows, s.queries, s.heads, s.value_size}) && out.is_contiguous() &&
                  lse.shape() == Shape({s.rows, s.heads, s.queries}),
              "attention: out {}, lse {}", out.shape().to_string(), lse.shape().to_string());
  dispatch("attention", in.q.dtype(), [&](auto type) {
    const int64_t blocks = ceil_div(s.queries, kQueryBlock);
    parallel_for(s.rows * s.heads * blocks, [&](int64_t tile) {
      forward_block<decltype(type)>(out, lse, in, s, tile / (s.heads * blocks), tile / blocks % s.heads,
                                    tile % blocks * kQueryBlock);
    });
  });
}

}  // namespace

void bind_attention_forward() {
  ops::attention.bind(DeviceKind::cpu, attention);
}

}  // namespace quire::cpu
