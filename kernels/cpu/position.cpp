#include "kernels/position.h"

#include "kernels/checks.h"
#include "kernels/cpu/common.h"

namespace quire::cpu {

namespace {

// Row n of out belongs to distance(n).
template <typename Distance>
void fill_sinusoid(const char* name, const Tensor& out, double base, const Distance& distance) {
  const int64_t width = out.dim(1);
  dispatch(name, out.dtype(), [&](auto type) {
    using T = decltype(type);
    std::vector<double> frequency(static_cast<size_t>(width / 2));
    for (int64_t i = 0; i < width / 2; ++i) {
      frequency[static_cast<size_t>(i)] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    }
    for_rows(out.dim(0), width, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const auto d = static_cast<double>(distance(n));
        T* row = out.data<T>() + n * width;
        for (int64_t i = 0; i < width / 2; ++i) {
          const double angle = d * frequency[static_cast<size_t>(i)];
          row[i] = static_cast<T>(std::sin(angle));
          row[width / 2 + i] = static_cast<T>(std::cos(angle));
        }
      }
    });
  });
}

void sinusoid(const Tensor& out, int64_t clamp, double base) {
  check_sinusoid(out);
  const int64_t entries = out.dim(0);
  fill_sinusoid("sinusoid", out, base, [=](int64_t n) {
    const int64_t distance = entries - 1 - n;
    return clamp > 0 ? std::min(distance, clamp) : distance;
  });
}

void sinusoid_at(const Tensor& out, const Tensor& position, double base) {
  check_sinusoid_at(out, position);
  fill_sinusoid("sinusoid_at", out, base, [at = position.data<int32_t>()](int64_t n) { return at[n]; });
}

// Calls f(entry, value of the table that it is read from) for every entry.
template <typename F>
void for_columns(const char* name, const Tensor& table, const Tensor& entries, const Tensor& index, const F& f) {
  check_gather_columns(name, table, entries, index);
  const int64_t columns = table.dim(1), count = index.numel();
  const int32_t* at = index.data<int32_t>();
  dispatch(name, entries.dtype(), [&](auto type) {
    using T = decltype(type);
    for (int64_t h = 0; h < table.dim(0); ++h) {
      for (int64_t n = 0; n < count; ++n) f(entries.data<T>()[h * count + n], table.data<T>()[h * columns + at[n]]);
    }
  });
}

void gather_columns(const Tensor& out, const Tensor& table, const Tensor& index) {
  for_columns("gather_columns", table, out, index, [](auto& entry, const auto& value) { entry = value; });
}

void gather_columns_backward(const Tensor& dtable, const Tensor& dout, const Tensor& index) {
  for_columns("gather_columns_backward", dtable, dout, index, [](const auto& entry, auto& value) { value += entry; });
}

}  // namespace

void bind_position() {
  ops::sinusoid.bind(DeviceKind::cpu, sinusoid);
  ops::sinusoid_at.bind(DeviceKind::cpu, sinusoid_at);
  ops::gather_columns.bind(DeviceKind::cpu, gather_columns);
  ops::gather_columns_backward.bind(DeviceKind::cpu, gather_columns_backward);
}

}  // namespace quire::cpu
