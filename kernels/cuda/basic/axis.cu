// Sums and softmax along one axis. A warp takes a row of the last axis, or eight short ones; for other axes each column
// has a thread, so that neighbours read neighbouring values.
#include "kernels/axis.h"

#include <limits>

#include "kernels/cuda/runtime.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cuda {

namespace {

// Describes the lanes of a warp that share a row. Sums of short rows equal those that a whole warp would compute.
template <int kLanes>
struct RowLanes {
  int64_t row = first_element() / kLanes;
  int64_t first = threadIdx.x % kLanes;

  template <typename W>
  __device__ W sum(W value) const {
    for (int bits = kLanes / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
    return value;
  }
  // Returns the largest value of the lanes; a NaN counts as the largest.
  template <typename W>
  __device__ W max(W value) const {
    for (int bits = kLanes / 2; bits > 0; bits /= 2) {
      const W other = __shfl_xor_sync(kAllLanes, value, bits);
      value = other > value || other != other ? other : value;
    }
    return value;
  }
};

// Calls function with the lanes of a row and the blocks for all rows.
template <typename Function>
void with_lanes(int64_t rows, int64_t width, Function&& function) {
  const auto blocks = [&](int64_t lanes) { return dim3(static_cast<unsigned>(ceil_div(rows, kBlock / lanes))); };
  if (width <= 4) {
    function(std::integral_constant<int, 4>{}, blocks(4));
  } else {
    function(std::integral_constant<int, kWarp>{}, blocks(kWarp));
  }
}

template <typename T, int kLanes>
__global__ void sum_rows_kernel(T* out, const T* in, int64_t rows, int64_t width, Wide<T> factor) {
  const RowLanes<kLanes> lanes;
  Wide<T> sum = 0;
  for (int64_t i = lanes.first; lanes.row < rows && i < width; i += kLanes) sum += wide(in[lanes.row * width + i]);
  sum = lanes.sum(sum);
  if (lanes.row < rows && lanes.first == 0) out[lanes.row] = narrow<T>(factor * sum);
}

template <typename T>
__global__ void sum_columns_kernel(T* out, const T* in, AxisSizes sizes, Wide<T> factor) {
  for (int64_t i = first_element(); i < sizes.outer * sizes.inner; i += element_stride()) {
    const T* const from = in + i / sizes.inner * sizes.size * sizes.inner + i % sizes.inner;
    Wide<T> sum = 0;
    for (int64_t n = 0; n < sizes.size; ++n) sum += wide(from[n * sizes.inner]);
    out[i] = narrow<T>(factor * sum);
  }
}

void sum_axis(const Tensor& out, const Tensor& in, int axis, double factor) {
  const AxisSizes sizes = check_sum_axis(out, in, axis);
  dispatch(in.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto times = static_cast<Wide<T>>(factor);
    if (sizes.inner == 1) {
      with_lanes(sizes.outer, sizes.size, [&](auto lanes, dim3 blocks) {
        launch(sum_rows_kernel<T, decltype(lanes)::value>, blocks, kBlock, 0, out.data<T>(), in.data<T>(), sizes.outer,
               sizes.size, times);
      });
    } else {
      launch(sum_columns_kernel<T>, blocks_for(sizes.outer * sizes.inner), kBlock, 0, out.data<T>(), in.data<T>(),
             sizes, times);
    }
  });
}

template <typename T>
__global__ void cumulative_sum_kernel(T* out, const T* in, AxisSizes sizes, bool reverse) {
  for (int64_t i = first_element(); i < sizes.outer * sizes.inner; i += element_stride()) {
    const int64_t begin = i / sizes.inner * sizes.size * sizes.inner + i % sizes.inner;
    Wide<T> sum = 0;
    for (int64_t n = 0; n < sizes.size; ++n) {
      const int64_t at = begin + (reverse ? sizes.size - 1 - n : n) * sizes.inner;
      sum += wide(in[at]);
      out[at] = narrow<T>(sum);
    }
  }
}

void cumulative_sum(const Tensor& out, const Tensor& in, int axis, bool reverse) {
  const AxisSizes sizes = check_cumulative_sum(out, in, axis);
  dispatch(in.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(cumulative_sum_kernel<T>, blocks_for(sizes.outer * sizes.inner), kBlock, 0, out.data<T>(), in.data<T>(),
           sizes, reverse);
  });
}

// `walk` goes over the input and the mask. out, lse and mask may be null.
template <typename T, int kLanes>
__global__ void softmax_kernel(T* out, Wide<T>* lse, const T* in, const uint8_t* mask, int64_t mask_stride,
                               int64_t rows, int64_t width, Strided<2> walk) {
  using W = Wide<T>;
  const W none = -std::numeric_limits<W>::infinity();
  const RowLanes<kLanes> lanes;
  const int64_t row = lanes.row;
  const bool exists = row < rows;
  const int64_t end = exists ? width : 0;
  int64_t at[2] = {};
  if (end > 0) walk.find(row * width, at);
  const auto kept = [&](int64_t i) { return mask == nullptr || mask[at[1] + i * mask_stride] != 0; };
  W max_value = none;
  for (int64_t i = lanes.first; i < end; i += kLanes) {
    const W x = wide(in[at[0] + i]);
    if (kept(i) && (x > max_value || x != x)) max_value = x;
  }
  max_value = lanes.max(max_value);
  const bool is_empty = max_value == none;
  W sum = 0;
  for (int64_t i = lanes.first; i < end; i += kLanes) {
    if (kept(i) && !is_empty) sum += std::exp(wide(in[at[0] + i]) - max_value);
  }
  sum = lanes.sum(sum);
  for (int64_t i = lanes.first; out != nullptr && i < end; i += kLanes) {
    const bool counts = kept(i) && !is_empty;
    out[at[0] + i] = narrow<T>(counts ? std::exp(wide(in[at[0] + i]) - max_value) / sum : W{0});
  }
  if (exists && lse != nullptr && lanes.first == 0) lse[row] = is_empty ? none : max_value + std::log(sum);
}

// Returns the number of rows, also for tensors without elements: their rows have a sum, too.
int64_t rows_of(const Tensor& tensor) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < tensor.rank(); ++axis) rows *= tensor.dim(axis);
  return rows;
}

void softmax(const Tensor& out, const Tensor& lse, const Tensor& in, const Tensor& mask) {
  check_softmax(out, lse, in, mask);
  const int64_t rows = rows_of(in);
  const Strided<2> walk({&in, &mask});
  dispatch(in.dtype(), [&](auto type) {
    using T = decltype(type);
    with_lanes(rows, in.dim(-1), [&](auto lanes, dim3 blocks) {
      launch(softmax_kernel<T, decltype(lanes)::value>, blocks, kBlock, 0, out.defined() ? out.data<T>() : nullptr,
             lse.defined() ? lse.data<Wide<T>>() : nullptr, in.data<T>(),
             mask.defined() ? mask.data<uint8_t>() : nullptr, mask.defined() ? mask.stride(-1) : 0, rows, in.dim(-1),
             walk);
    });
  });
}

template <typename T, int kLanes>
__global__ void softmax_backward_kernel(T* din, const T* dout, const Wide<T>* dlse, const T* out, int64_t rows,
                                        int64_t width) {
  using W = Wide<T>;
  const RowLanes<kLanes> lanes;
  const int64_t row = lanes.row;
  const int64_t end = row < rows ? width : 0;
  W sum = 0;
  for (int64_t i = lanes.first; dout != nullptr && i < end; i += kLanes) {
    sum += wide(dout[row * width + i]) * wide(out[row * width + i]);
  }
  sum = lanes.sum(sum);
  if (dlse != nullptr && row < rows) sum -= dlse[row];
  for (int64_t i = lanes.first; i < end; i += kLanes) {
    const int64_t at = row * width + i;
    din[at] = narrow<T>(wide(out[at]) * ((dout == nullptr ? W{0} : wide(dout[at])) - sum));
  }
}

void softmax_backward(const Tensor& din, const Tensor& dout, const Tensor& dlse, const Tensor& out) {
  check_softmax_backward(din, dout, dlse, out);
  const int64_t rows = rows_of(out);
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    with_lanes(rows, out.dim(-1), [&](auto lanes, dim3 blocks) {
      launch(softmax_backward_kernel<T, decltype(lanes)::value>, blocks, kBlock, 0, din.data<T>(),
             dout.defined() ? dout.data<T>() : nullptr, dlse.defined() ? dlse.data<Wide<T>>() : nullptr, out.data<T>(),
             rows, out.dim(-1));
    });
  });
}

}  // namespace

void bind_axis() {
  ops::sum_axis.bind(DeviceKind::cuda, sum_axis);
  ops::cumulative_sum.bind(DeviceKind::cuda, cumulative_sum);
  ops::softmax.bind(DeviceKind::cuda, softmax);
  ops::softmax_backward.bind(DeviceKind::cuda, softmax_backward);
}

}  // namespace quire::cuda
