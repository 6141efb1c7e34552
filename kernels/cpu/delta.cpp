// The gated delta rule in chunks of a few tokens: two passes over the state for all of them instead of three for each.
#include "kernels/delta.h"

#include "kernels/cpu/delta_chunk.h"

namespace quire::cpu {

namespace {

template <typename T>
void run_segment(const DeltaData<T>& in, int64_t segment, int64_t head, T* out, T* last, T* chunks) {
  const DeltaSizes& s = in.s;
  const int64_t begin = in.segments[2 * segment], count = in.segments[2 * segment + 1];
  const int64_t value = DeltaChunk<T>::padded(s.value), read_size = 2 * kDeltaTokens * value;
  const int64_t size = s.key * value + read_size + DeltaChunk<T>::memory_size(s);
  T* const state = scratch<T>(0, size);
  std::fill_n(state, size, T{0});
  T* const read = state + s.key * value;  // by the queries, then by the erased keys
  DeltaChunk<T> chunk(in, head, read + read_size);
  const T* const from = in.state + in.state_at(segment, head);
  for (int64_t d = 0; d < s.key; ++d) std::copy_n(from + d * s.value, s.value, state + d * value);
  const auto keep = [&](T* to) {
    for (int64_t d = 0; d < s.key; ++d) std::copy_n(state + d * value, s.value, to + d * s.value);
  };
  for (int64_t t = 0; t < count; t += kDeltaTokens) {
    if (chunks != nullptr && t % ops::kDeltaChunk == 0) keep(chunks + in.chunk_at(begin, segment, head, t));
    chunk.set(begin + t, std::min(kDeltaTokens, count - t));
    const int64_t n = chunk.n;
    block_product<T>(read, value, {chunk.reads, chunk.key}, state, value, chunk.erases() ? 2 * n : n, value, s.key,
                     false);
    T* const u = chunk.written;
    if (chunk.erases()) {
      for (int64_t i = 0; i < n * value; ++i) u[i] -= read[n * value + i];
      chunk.solve(u);
    }
    block_product<T>(read, value, {chunk.p, kDeltaTokens, true}, u, value, n, value, n, true);
    for (int64_t i = 0; i < n; ++i) std::copy_n(read + i * value, s.value, out + in.value_at(begin + t + i, head));
    chunk.advance(state, u);
  }
  keep(last + in.state_at(segment, head));
}

void delta_rule(const Tensor& out, const Tensor& last, const Tensor& chunks, const ops::DeltaInputs& in) {
  dispatch("delta_rule", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const DeltaData<T> data(in);
    out.zero();
    parallel_for(data.s.segments * data.s.value_heads, [&](int64_t task) {
      run_segment<T>(data, task / data.s.value_heads, task % data.s.value_heads, out.data<T>(), last.data<T>(),
                     chunks.defined() ? chunks.data<T>() : nullptr);
    });
  });
}

}  // namespace

void bind_delta() {
  ops::delta_rule.bind(DeviceKind::cpu, delta_rule);
}

}  // namespace quire::cpu
