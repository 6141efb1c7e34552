#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/checks.h"
#include "kernels/cpu/common.h"
#include "kernels/strided.h"

namespace quire::cpu {

namespace {

void copy(const Tensor& out, const Tensor& in) {
  check_copy(out, in);
  const Strided<2> walk({&out, &in});
  if (walk.count == 0) return;
  const int last = walk.rank - 1;
  const int64_t run = walk.rank == 0 ? 1 : walk.size[last];
  const int64_t to_stride = walk.rank == 0 ? 1 : walk.stride[0][last];
  const int64_t from_stride = walk.rank == 0 ? 1 : walk.stride[1][last];
  dispatch_size(size_of(in.dtype()), [&](auto type) {
    using T = decltype(type);
    for_rows(walk.count / run, run, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t at[2];
        walk.find(row * run, at);
        T* const to = static_cast<T*>(out.raw()) + at[0];
        const T* const from = static_cast<const T*>(in.raw()) + at[1];
        if (to_stride == 1 && from_stride == 1) {
          std::memcpy(to, from, static_cast<size_t>(run) * sizeof(T));
        } else {
          for (int64_t i = 0; i < run; ++i) to[i * to_stride] = from[i * from_stride];
        }
      }
    });
  });
}

void add(const Tensor& out, const Tensor& a, const Tensor& b, double alpha, double beta) {
  require_alike("add", {&out, &a, &b});
  dispatch_stored("add", out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* y = out.data<T>();
    const T* x = a.data<T>();
    const T* z = b.data<T>();
    const auto p = static_cast<Wide<T>>(alpha);
    const auto q = static_cast<Wide<T>>(beta);
    for_elements(out.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = narrow<T>(p * wide(x[i]) + q * wide(z[i]));
    });
  });
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b) {
  require_alike("multiply", {&out, &a, &b});
  dispatch_stored("multiply", out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* y = out.data<T>();
    const T* x = a.data<T>();
    const T* z = b.data<T>();
    for_elements(out.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = narrow<T>(wide(x[i]) * wide(z[i]));
    });
  });
}

void scale(const Tensor& out, const Tensor& in, double alpha) {
  require_alike("scale", {&out, &in});
  dispatch_stored("scale", out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* y = out.data<T>();
    const T* x = in.data<T>();
    const auto p = static_cast<Wide<T>>(alpha);
    for_elements(out.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = narrow<T>(p * wide(x[i]));
    });
  });
}

void scale_by(const Tensor& out, const Tensor& in, const Tensor& factor) {
  check_scale_by(out, in, factor);
  scale(out, in, factor.data<double>()[0]);
}

void add_bias(const Tensor& out, const Tensor& in, const Tensor& bias) {
  check_add_bias(out, in, bias);
  const int64_t width = bias.numel();
  dispatch("add_bias", out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* y = out.data<T>();
    const T* x = in.data<T>();
    const T* b = bias.data<T>();
    for_rows(in.numel() / width, width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        for (int64_t n = 0; n < width; ++n) y[m * width + n] = x[m * width + n] + b[n];
      }
    });
  });
}

void sum_rows(const Tensor& out, const Tensor& in, bool accumulate) {
  check_sum_rows(out, in);
  const int64_t width = out.numel();
  const int64_t rows = width == 0 ? 0 : in.numel() / width;
  dispatch("sum_rows", out.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* x = in.data<T>();
    T* y = out.data<T>();
    const int64_t parts = reduction_parts(rows);
    const Tensor partial = Tensor::empty({parts, width}, out.dtype());
    T* sums = partial.data<T>();
    parallel_for(parts, [&](int64_t part) {
      T* sum = sums + part * width;
      std::fill(sum, sum + width, T{0});
      for (int64_t m = rows * part / parts; m < rows * (part + 1) / parts; ++m) {
        for (int64_t n = 0; n < width; ++n) sum[n] += x[m * width + n];
      }
    });
    for (int64_t n = 0; n < width; ++n) {
      T total = accumulate ? y[n] : T{0};
      for (int64_t part = 0; part < parts; ++part) total += sums[part * width + n];
      y[n] = total;
    }
  });
}

void scale_heads(const Tensor& out, const Tensor& x, const Tensor& s) {
  check_scale_heads(out, x, s);
  const int64_t heads = s.numel();
  const int64_t size = x.dim(-1);
  dispatch("scale_heads", out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* y = out.data<T>();
    const T* in = x.data<T>();
    const T* factor = s.data<T>();
    for_rows(x.numel() / size, size, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const T f = std::abs(factor[m % heads]);
        for (int64_t d = 0; d < size; ++d) y[m * size + d] = f * in[m * size + d];
      }
    });
  });
}

void scale_heads_backward(const Tensor& dx, const Tensor& ds, const Tensor& dy, const Tensor& x, const Tensor& s,
                          bool accumulate) {
  check_scale_heads_backward(dx, ds, dy, x, s);
  const int64_t heads = s.numel();
  const int64_t size = x.dim(-1);
  const int64_t tokens = x.numel() / (heads * size);
  dispatch("scale_heads_backward", dx.dtype(), [&](auto type) {
    using T = decltype(type);
    T* out = dx.data<T>();
    const T* grad = dy.data<T>();
    const T* in = x.data<T>();
    const T* factor = s.data<T>();
    T* dfactor = ds.data<T>();
    parallel_for(heads, [&](int64_t h) {
      const T sign = factor[h] < 0 ? T{-1} : T{1};
      const T f = std::abs(factor[h]);
      T sum = 0;
      for (int64_t m = 0; m < tokens; ++m) {
        const int64_t at = (m * heads + h) * size;
        for (int64_t d = 0; d < size; ++d) {
          sum += grad[at + d] * in[at + d];
          out[at + d] = f * grad[at + d];
        }
      }
      dfactor[h] = (accumulate ? dfactor[h] : T{0}) + sign * sum;
    });
  });
}

void dropout(const Tensor& out, const Tensor& in, const Tensor& residual, const ops::DropoutKey& options) {
  check_dropout(out, in, residual);
  const int64_t tokens = in.dim(1);
  const int64_t width = in.dim(2);
  // An element is kept when bits >= p 2^32: one comparison per element.
  const auto threshold = static_cast<uint64_t>(options.probability * 4294967296.0);
  dispatch("dropout", out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* y = out.data<T>();
    const T* x = in.data<T>();
    const T* rest = residual.defined() ? residual.data<T>() : nullptr;
    const T keep_scale = static_cast<T>(1.0 / (1.0 - options.probability));
    for_rows(in.dim(0) * tokens, width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const auto row = static_cast<uint32_t>(options.first_row + m / tokens);
        const auto token = static_cast<uint32_t>(m % tokens);
        for (int64_t n = 0; n < width; n += 4) {
          const auto bits = philox(options.key, options.scope, row, token, static_cast<uint32_t>(n / 4));
          for (int64_t lane = 0; lane < std::min<int64_t>(4, width - n); ++lane) {
            const int64_t at = m * width + n + lane;
            const T kept = bits[static_cast<size_t>(lane)] >= threshold ? x[at] * keep_scale : T{0};
            y[at] = rest == nullptr ? kept : rest[at] + kept;
          }
        }
      }
    });
  });
}

}  // namespace

void bind_elementwise() {
  ops::copy.bind(DeviceKind::cpu, copy);
  ops::add.bind(DeviceKind::cpu, add);
  ops::multiply.bind(DeviceKind::cpu, multiply);
  ops::scale.bind(DeviceKind::cpu, scale);
  ops::scale_by.bind(DeviceKind::cpu, scale_by);
  ops::add_bias.bind(DeviceKind::cpu, add_bias);
  ops::sum_rows.bind(DeviceKind::cpu, sum_rows);
  ops::scale_heads.bind(DeviceKind::cpu, scale_heads);
  ops::scale_heads_backward.bind(DeviceKind::cpu, scale_heads_backward);
  ops::dropout.bind(DeviceKind::cpu, dropout);
}

}  // namespace quire::cpu
