#include "kernels/rotary.h"

#include "kernels/checks.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

template <typename T>
__global__ void rotary_table_kernel(T* table, int64_t count, int64_t pairs, int64_t origin, double base,
                                    int64_t step) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t n = i / pairs;
    const int64_t pair = i % pairs;
    const double frequency = std::pow(base, -static_cast<double>(pair) / static_cast<double>(pairs));
    const double angle = static_cast<double>((n - origin) * step) * frequency;
    table[n * 2 * pairs + pair] = static_cast<T>(std::cos(angle));
    table[n * 2 * pairs + pairs + pair] = static_cast<T>(std::sin(angle));
  }
}

void rotary_table(const Tensor& table, int64_t origin, double base, int64_t step) {
  check_rotary_table(table);
  dispatch_wide(table.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(rotary_table_kernel<T>, blocks_for(table.numel() / 2), kBlock, 0, table.data<T>(), table.numel() / 2,
           table.dim(2), origin, base, step);
  });
}

// A block a token. Each of its threads turns pairs of a head, or copies a feature that stays.
template <typename T>
__global__ void rotary_kernel(T* y, const T* x, const Wide<T>* table, const int32_t* head, const int32_t* given,
                              int64_t tokens, int heads, int size, int pairs, int64_t entries, int64_t origin,
                              bool inverse, bool interleaved) {
  using W = Wide<T>;
  const int64_t token = blockIdx.x;
  int64_t position = given != nullptr ? given[token] : token % tokens;
  if (head != nullptr) {
    const int64_t age = (head[token / tokens] - 1 - position + tokens) % tokens;
    position = -1 - age;
  }
  // The host does not see given positions; those beyond the table would read what is not there.
  int64_t entry = origin + position;
  entry = entry < 0 ? 0 : (entry < entries ? entry : entries - 1);
  const W* const cosine = table + entry * 2 * pairs;
  const W* const sine = cosine + pairs;
  const int items = size - pairs;  // of a head
  for (int item = static_cast<int>(threadIdx.x); item < heads * items; item += static_cast<int>(blockDim.x)) {
    const int i = item % items;
    const int64_t line = (token * heads + item / items) * size;
    if (i >= pairs) {
      y[line + i + pairs] = x[line + i + pairs];
      continue;
    }
    const int64_t at = line + (interleaved ? 2 * i : i);
    const int64_t second = at + (interleaved ? 1 : pairs);
    const W a = wide(x[at]);
    const W b = wide(x[second]);
    const W c = cosine[i];
    const W s = inverse ? -sine[i] : sine[i];
    y[at] = narrow<T>(a * c - b * s);
    y[second] = narrow<T>(a * s + b * c);
  }
}

void rotary(const Tensor& out, const ops::RotaryInputs& in) {
  check_rotary(out, in);
  const int64_t tokens = in.x.dim(1);
  const auto heads = static_cast<int>(in.x.dim(2));
  const auto size = static_cast<int>(in.x.dim(3));
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(rotary_kernel<T>, dim3(static_cast<unsigned>(in.x.dim(0) * tokens)), kBlock, 0, out.data<T>(),
           in.x.data<T>(), in.table.data<Wide<T>>(), in.head.defined() ? in.head.data<int32_t>() : nullptr,
           in.position.defined() ? in.position.data<int32_t>() : nullptr, tokens, heads, size, in.table.dim(2),
           in.table.dim(0), in.origin, in.inverse, in.interleaved);
  });
}

}  // namespace

void bind_rotary() {
  ops::rotary.bind(DeviceKind::cuda, rotary);
  ops::rotary_table.bind(DeviceKind::cuda, rotary_table);
}

}  // namespace quire::cuda
