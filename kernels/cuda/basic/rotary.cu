#include "kernels/rotary.h"

#include "kernels/checks.h"
#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

template <typename T>
__global__ void rotary_table_kernel(T* table, const double* frequency, int64_t count, int64_t pairs, int64_t origin,
                                    int64_t step) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t n = i / pairs;
    const int64_t pair = i % pairs;
    const double angle = static_cast<double>((n - origin) * step) * frequency[pair];
    table[n * 2 * pairs + pair] = static_cast<T>(std::cos(angle));
    table[n * 2 * pairs + pairs + pair] = static_cast<T>(std::sin(angle));
  }
}

void rotary_table(const Tensor& table, const Tensor& frequency, int64_t origin, int64_t step) {
  check_rotary_table(table, frequency);
  dispatch_wide(table.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(rotary_table_kernel<T>, blocks_for(table.numel() / 2), kBlock, 0, table.data<T>(), frequency.data<double>(),
           table.numel() / 2, table.dim(2), origin, step);
  });
}

template <typename T>
struct RotaryOperands {
  T* y;
  const T* x;
  const Wide<T>* table;
  const int32_t *head, *given;
  int all_tokens, tokens;  // tokens of all rows, and of one row
  int heads, size, pairs;
  int64_t entries, origin;
  bool inverse, aligned;

  // Returns the cosines of a token's position; the sines follow them.
  __device__ const Wide<T>* angles_of(int token) const {
    int64_t position = given != nullptr ? given[token] : token % tokens;
    if (head != nullptr) {
      const int64_t age = (head[token / tokens] - 1 - position + tokens) % tokens;
      position = -1 - age;
    }
    // The host cannot check given positions. Clamping keeps those beyond the table from reading outside it.
    int64_t entry = origin + position;
    entry = entry < 0 ? 0 : (entry < entries ? entry : entries - 1);
    return table + entry * 2 * pairs;
  }
};

// Rotates kCount pairs (a, b) of features at once.
template <typename W, int kCount>
__device__ inline void rotate(W (&a)[kCount], W (&b)[kCount], const W* angles, int pairs, int first, bool inverse,
                              bool aligned) {
  const Pack<W, kCount> cosine = load<kCount>(angles + first, aligned);
  const Pack<W, kCount> sine = load<kCount>(angles + pairs + first, aligned);
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const W s = inverse ? -sine.value[n] : sine.value[n];
    const W x = a[n];
    a[n] = x * cosine.value[n] - b[n] * s;
    b[n] = x * s + b[n] * cosine.value[n];
  }
}

// A thread takes one item of a head: kPack pairs whose halves lie apart, kPack features of kPack / 2 neighbouring
// pairs, or kPack features that are not rotated. A block has as many tokens as give each of its threads an item.
// Without packs a pair of neighbours is one item.
template <typename T, int kPack, bool kInterleaved>
__global__ void rotary_kernel(RotaryOperands<T> in, int tokens_of_block) {
  using W = Wide<T>;
  constexpr int kPairs = kInterleaved ? (kPack > 1 ? kPack / 2 : 1) : kPack;  // of an item
  const int turning = in.pairs / kPairs;
  const int items = turning + (in.size - 2 * in.pairs) / kPack;
  const int first_token = static_cast<int>(blockIdx.x) * tokens_of_block;
  const int left = in.all_tokens - first_token;
  const int count = (left < tokens_of_block ? left : tokens_of_block) * in.heads * items;
  for (int n = static_cast<int>(threadIdx.x); n < count; n += kBlock) {
    const int item = n % items;
    const int line = first_token * in.heads + n / items;
    const T* const x = in.x + static_cast<int64_t>(line) * in.size;
    T* const y = in.y + static_cast<int64_t>(line) * in.size;
    if (item >= turning) {
      const int f = 2 * in.pairs + (item - turning) * kPack;
      store<kPack>(y + f, load<kPack>(x + f, in.aligned), in.aligned);
      continue;
    }
    const W* const angles = in.angles_of(line / in.heads);
    const int first = item * kPairs;
    W a[kPairs];
    W b[kPairs];
    if constexpr (kInterleaved) {
      Pack<T, 2 * kPairs> both = load<2 * kPairs>(x + 2 * first, in.aligned);
#pragma unroll
      for (int k = 0; k < kPairs; ++k) {
        a[k] = wide(both.value[2 * k]);
        b[k] = wide(both.value[2 * k + 1]);
      }
      rotate(a, b, angles, in.pairs, first, in.inverse, in.aligned);
#pragma unroll
      for (int k = 0; k < kPairs; ++k) {
        both.value[2 * k] = narrow<T>(a[k]);
        both.value[2 * k + 1] = narrow<T>(b[k]);
      }
      store<2 * kPairs>(y + 2 * first, both, in.aligned);
    } else {
      Pack<T, kPack> low = load<kPack>(x + first, in.aligned);
      Pack<T, kPack> high = load<kPack>(x + in.pairs + first, in.aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        a[k] = wide(low.value[k]);
        b[k] = wide(high.value[k]);
      }
      rotate(a, b, angles, in.pairs, first, in.inverse, in.aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        low.value[k] = narrow<T>(a[k]);
        high.value[k] = narrow<T>(b[k]);
      }
      store<kPack>(y + first, low, in.aligned);
      store<kPack>(y + in.pairs + first, high, in.aligned);
    }
  }
}

template <typename T, int kPack>
void run_rotary(const RotaryOperands<T>& in, bool interleaved) {
  const int pairs = interleaved ? (kPack > 1 ? kPack / 2 : 1) : kPack;
  const int items = in.heads * (in.pairs / pairs + (in.size - 2 * in.pairs) / kPack);
  const int tokens = items < kBlock ? kBlock / items : 1;
  const dim3 blocks(static_cast<unsigned>(ceil_div(in.all_tokens, tokens)));
  if (interleaved) return launch(rotary_kernel<T, kPack, true>, blocks, kBlock, 0, in, tokens);
  launch(rotary_kernel<T, kPack, false>, blocks, kBlock, 0, in, tokens);
}

void rotary(const Tensor& out, const ops::RotaryInputs& in) {
  check_rotary(out, in);
  if (out.numel() == 0) return;
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    constexpr int kPack = kPackOf<T>;
    RotaryOperands<T> operands{};
    operands.y = out.data<T>();
    operands.x = in.x.data<T>();
    operands.table = in.table.data<Wide<T>>();
    operands.head = in.head.defined() ? in.head.data<int32_t>() : nullptr;
    operands.given = in.position.defined() ? in.position.data<int32_t>() : nullptr;
    operands.all_tokens = static_cast<int>(in.x.dim(0) * in.x.dim(1));
    operands.tokens = static_cast<int>(in.x.dim(1));
    operands.heads = static_cast<int>(in.x.dim(2));
    operands.size = static_cast<int>(in.x.dim(3));
    operands.pairs = static_cast<int>(in.table.dim(2));
    operands.entries = in.table.dim(0);
    operands.origin = in.origin;
    operands.inverse = in.inverse;
    operands.aligned = are_aligned({out.raw(), in.x.raw(), in.table.raw()});
    // The halves, the features that are not rotated and the rows of the table begin at multiples of a pack.
    if (operands.size % kPack == 0 && operands.pairs % kPack == 0) {
      run_rotary<T, kPack>(operands, in.interleaved);
    } else {
      operands.aligned = false;
      run_rotary<T, 1>(operands, in.interleaved);
    }
  });
}

}  // namespace

void bind_rotary() {
  ops::rotary.bind(DeviceKind::cuda, rotary);
  ops::rotary_table.bind(DeviceKind::cuda, rotary_table);
}

}  // namespace quire::cuda
