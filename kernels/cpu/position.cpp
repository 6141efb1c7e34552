#include "kernels/position.h"

#include "kernels/checks.h"
#include "kernels/cpu/common.h"

namespace quire::cpu {

namespace {

void sinusoid(const Tensor& out, int64_t clamp, double base) {
  const int64_t entries = out.dim(0);
  const int64_t width = out.dim(1);
  check_sinusoid(out);
  dispatch("sinusoid", out.dtype(), [&](auto type) {
    using T = decltype(type);
    std::vector<double> frequency(static_cast<size_t>(width / 2));
    for (int64_t i = 0; i < width / 2; ++i) {
      frequency[static_cast<size_t>(i)] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    }
    for_rows(entries, width, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        int64_t distance = entries - 1 - n;
        if (clamp > 0) distance = std::min(distance, clamp);
        T* row = out.data<T>() + n * width;
        for (int64_t i = 0; i < width / 2; ++i) {
          const double angle = static_cast<double>(distance) * frequency[static_cast<size_t>(i)];
          row[i] = static_cast<T>(std::sin(angle));
          row[width / 2 + i] = static_cast<T>(std::cos(angle));
        }
      }
    });
  });
}

void gather_columns(const Tensor& out, const Tensor& table, const Tensor& index) {
  check_gather_columns("gather_columns", table, out, index);
  const int64_t heads = table.dim(0);
  const int64_t columns = table.dim(1);
  const int64_t count = index.numel();
  const int32_t* at = index.data<int32_t>();
  dispatch("gather_columns", out.dtype(), [&](auto type) {
    using T = decltype(type);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < count; ++n) out.data<T>()[h * count + n] = table.data<T>()[h * columns + at[n]];
    }
  });
}

void gather_columns_backward(const Tensor& dtable, const Tensor& dout, const Tensor& index) {
  check_gather_columns("gather_columns_backward", dtable, dout, index);
  const int64_t heads = dtable.dim(0);
  const int64_t columns = dtable.dim(1);
  const int64_t count = index.numel();
  const int32_t* at = index.data<int32_t>();
  dispatch("gather_columns_backward", dout.dtype(), [&](auto type) {
    using T = decltype(type);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < count; ++n) dtable.data<T>()[h * columns + at[n]] += dout.data<T>()[h * count + n];
    }
  });
}

}  // namespace

void bind_position() {
  ops::sinusoid.bind(DeviceKind::cpu, sinusoid);
  ops::gather_columns.bind(DeviceKind::cpu, gather_columns);
  ops::gather_columns_backward.bind(DeviceKind::cpu, gather_columns_backward);
}

}  // namespace quire::cpu
