#include "kernels/position.h"

#include "kernels/checks.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

// Row n belongs to position[n], or to distance entries - 1 - n where there are no positions.
template <typename T>
__global__ void sinusoid_kernel(T* out, const int32_t* position, int64_t entries, int64_t half, int64_t clamp,
                                double base) {
  for (int64_t i = first_element(); i < entries * half; i += element_stride()) {
    const int64_t n = i / half;
    const int64_t column = i % half;
    int64_t distance = position != nullptr ? position[n] : entries - 1 - n;
    if (clamp > 0 && distance > clamp) distance = clamp;
    const double frequency = std::pow(base, -static_cast<double>(column) / static_cast<double>(half));
    const double angle = static_cast<double>(distance) * frequency;
    out[n * 2 * half + column] = static_cast<T>(static_cast<Wide<T>>(std::sin(angle)));
    out[n * 2 * half + half + column] = static_cast<T>(static_cast<Wide<T>>(std::cos(angle)));
  }
}

void fill_sinusoid(const Tensor& out, const int32_t* position, int64_t clamp, double base) {
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(sinusoid_kernel<T>, blocks_for(out.numel() / 2), kBlock, 0, out.data<T>(), position, out.dim(0),
           out.dim(1) / 2, clamp, base);
  });
}

void sinusoid(const Tensor& out, int64_t clamp, double base) {
  check_sinusoid(out);
  fill_sinusoid(out, nullptr, clamp, base);
}

void sinusoid_at(const Tensor& out, const Tensor& position, double base) {
  check_sinusoid_at(out, position);
  fill_sinusoid(out, position.data<int32_t>(), 0, base);
}

template <typename T>
__global__ void gather_columns_kernel(T* out, const T* table, const int32_t* index, int64_t heads, int64_t columns,
                                      int64_t count) {
  for (int64_t i = first_element(); i < heads * count; i += element_stride()) {
    out[i] = table[i / count * columns + index[i % count]];
  }
}

void gather_columns(const Tensor& out, const Tensor& table, const Tensor& index) {
  check_gather_columns("gather_columns", table, out, index);
  dispatch_wide(out.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(gather_columns_kernel<T>, blocks_for(out.numel()), kBlock, 0, out.data<T>(), table.data<T>(),
           index.data<int32_t>(), table.dim(0), table.dim(1), index.numel());
  });
}

// A block sums for one entry of the table: there are few of them.
template <typename T>
__global__ void gather_columns_backward_kernel(T* dtable, const T* dout, const int32_t* index, int64_t columns,
                                               int64_t count) {
  __shared__ T of_warps[kBlock / kWarp];
  const int64_t head = blockIdx.x / columns;
  const int64_t column = blockIdx.x % columns;
  T sum = 0;
  for (int64_t n = threadIdx.x; n < count; n += blockDim.x) {
    if (index[n] == column) sum += dout[head * count + n];
  }
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) dtable[blockIdx.x] += sum;
}

void gather_columns_backward(const Tensor& dtable, const Tensor& dout, const Tensor& index) {
  check_gather_columns("gather_columns_backward", dtable, dout, index);
  dispatch_wide(dout.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(gather_columns_backward_kernel<T>, dim3(static_cast<unsigned>(dtable.numel())), kBlock, 0, dtable.data<T>(),
           dout.data<T>(), index.data<int32_t>(), dtable.dim(1), index.numel());
  });
}

}  // namespace

void bind_position() {
  ops::gather_columns.bind(DeviceKind::cuda, gather_columns);
  ops::gather_columns_backward.bind(DeviceKind::cuda, gather_columns_backward);
  ops::sinusoid.bind(DeviceKind::cuda, sinusoid);
  ops::sinusoid_at.bind(DeviceKind::cuda, sinusoid_at);
}

}  // namespace quire::cuda
