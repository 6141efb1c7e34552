#include "kernels/pointwise.h"

#include "kernels/checks.h"
#include "kernels/cpu/lanes.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cpu {

namespace {

// Calls body(at, count) for runs along the last axis; `at` is the offset of the run in each operand.
template <int kOperands, typename Body>
void for_runs(const Strided<kOperands>& walk, Body&& body) {
  if (walk.count == 0) return;
  const int64_t inner = walk.rank == 0 ? 1 : walk.size[walk.rank - 1];
  const int64_t pieces = ceil_div(inner, kElementTile);
  const int64_t rows = walk.count / inner;
  const int64_t rows_of_tile = std::max<int64_t>(1, kElementTile / inner);
  parallel_for(ceil_div(rows, rows_of_tile) * pieces, [&](int64_t tile) {
    const int64_t begin = tile % pieces * kElementTile;
    const int64_t first = tile / pieces * rows_of_tile;
    for (int64_t row = first; row < std::min(rows, first + rows_of_tile); ++row) {
      int64_t at[kOperands];
      walk.find(row * inner + begin, at);
      body(at, std::min(kElementTile, inner - begin));
    }
  });
}

template <int kOperands>
int64_t inner_stride(const Strided<kOperands>& walk, int operand) {
  return walk.rank == 0 ? 1 : walk.stride[operand][walk.rank - 1];
}

// Computes y[i] = f(a[i], b[i]); the loops for dense operands and for a repeated second one become vectors.
template <typename T, typename F>
void run_of_pairs(T* y, int64_t sy, const T* a, int64_t sa, const T* b, int64_t sb, int64_t count, F f) {
  if (sy == 1 && sa == 1 && sb == 1) {
    for (int64_t i = 0; i < count; ++i) y[i] = narrow<T>(f(wide(a[i]), wide(b[i])));
  } else if (sy == 1 && sa == 1 && sb == 0) {
    const Wide<T> repeated = wide(*b);
    for (int64_t i = 0; i < count; ++i) y[i] = narrow<T>(f(wide(a[i]), repeated));
  } else {
    for (int64_t i = 0; i < count; ++i) y[i * sy] = narrow<T>(f(wide(a[i * sa]), wide(b[i * sb])));
  }
}

// Calls function(f) with f(a, b) for the kind.
template <typename Function>
void with_binary(ops::Binary kind, Function&& function) {
  switch (kind) {
    case ops::Binary::sum:
      return function([](auto a, auto b) { return a + b; });
    case ops::Binary::difference:
      return function([](auto a, auto b) { return a - b; });
    case ops::Binary::product:
      return function([](auto a, auto b) { return a * b; });
    case ops::Binary::quotient:
      return function([](auto a, auto b) { return a / b; });
    case ops::Binary::maximum:
      return function([](auto a, auto b) { return a >= b || a != a ? a : b; });
  }
}

void binary(const Tensor& out, const Tensor& a, const Tensor& b, ops::Binary kind) {
  check_binary(out, a, b);
  const Strided<3> walk({&out, &a, &b});
  dispatch_stored("binary", out.dtype(), [&](auto type) {
    using T = decltype(type);
    with_binary(kind, [&](auto f) {
      for_runs(walk, [&](const int64_t(&at)[3], int64_t count) {
        run_of_pairs(out.data<T>() + at[0], inner_stride(walk, 0), a.data<T>() + at[1], inner_stride(walk, 1),
                     b.data<T>() + at[2], inner_stride(walk, 2), count, f);
      });
    });
  });
}

// Calls function(f) with f(dout, a, b, da, db), which sets the last two.
template <typename Function>
void with_binary_backward(ops::Binary kind, Function&& function) {
  switch (kind) {
    case ops::Binary::sum:
      return function([](auto g, auto, auto, auto& da, auto& db) { da = db = g; });
    case ops::Binary::difference:
      return function([](auto g, auto, auto, auto& da, auto& db) { da = g, db = -g; });
    case ops::Binary::product:
      return function([](auto g, auto a, auto b, auto& da, auto& db) { da = g * b, db = g * a; });
    case ops::Binary::quotient:
      return function([](auto g, auto a, auto b, auto& da, auto& db) { da = g / b, db = -g * a / (b * b); });
    case ops::Binary::maximum:
      return function([](auto g, auto a, auto b, auto& da, auto& db) {
        const bool first = a >= b || a != a;
        da = first ? g : 0;
        db = first ? 0 : g;
      });
  }
}

// Calls body(i, da, db) with the gradients of both operands for each element i of a run; `strides` are those of g, a
// and b. The loops of dense operands, and of a repeated b, become vectors.
template <typename T, typename F, typename Body>
void run_of_gradients(const T* g, const T* a, const T* b, const std::array<int64_t, 3>& strides, int64_t count, F f,
                      const Body& body) {
  const auto loop = [&](auto sg, auto sa, auto sb) {
    for (int64_t i = 0; i < count; ++i) {
      Wide<T> first;
      Wide<T> second;
      f(wide(g[i * sg]), wide(a[i * sa]), wide(b[i * sb]), first, second);
      body(i, first, second);
    }
  };
  constexpr std::integral_constant<int64_t, 1> one;
  if (strides == std::array<int64_t, 3>{1, 1, 1}) {
    loop(one, one, one);
  } else if (strides == std::array<int64_t, 3>{1, 1, 0}) {
    loop(one, one, std::integral_constant<int64_t, 0>{});
  } else {
    loop(strides[0], strides[1], strides[2]);
  }
}

void binary_backward(const Tensor& da, const Tensor& db, const Tensor& dout, const Tensor& a, const Tensor& b,
                     ops::Binary kind) {
  check_binary_backward(da, db, dout, a, b);
  const Strided<5> walk({&dout, &a, &b, &da, &db});
  dispatch_stored("binary_backward", dout.dtype(), [&](auto type) {
    using T = decltype(type);
    with_binary_backward(kind, [&](auto f) {
      for_runs(walk, [&](const int64_t(&at)[5], int64_t count) {
        const T* const g = dout.data<T>() + at[0];
        const T* const x = a.data<T>() + at[1];
        const T* const y = b.data<T>() + at[2];
        T* const dx = da.defined() ? da.data<T>() + at[3] : nullptr;
        T* const dy = db.defined() ? db.data<T>() + at[4] : nullptr;
        const auto run = [&](T* to, int64_t stride, auto pick) {
          if (to == nullptr) return;
          const auto each = [&](auto step) {
            run_of_gradients(
                g, x, y, {inner_stride(walk, 0), inner_stride(walk, 1), inner_stride(walk, 2)}, count, f,
                [&](int64_t i, auto first, auto second) { to[i * step] = narrow<T>(pick(first, second)); });
          };
          if (stride == 1) return each(std::integral_constant<int64_t, 1>{});
          each(stride);
        };
        run(dx, inner_stride(walk, 3), [](auto first, auto) { return first; });
        run(dy, inner_stride(walk, 4), [](auto, auto second) { return second; });
      });
    });
  });
}

void unary(const Tensor& out, const Tensor& in, ops::Unary kind) {
  require_alike("unary", {&out, &in});
  dispatch_stored("unary", out.dtype(), [&](auto type) {
    using T = decltype(type);
    for_elements(out.numel(), [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      const ConstArrayView<Wide<T>> x(widened(in.data<T>() + begin, count, 0), count);
      ArrayView<Wide<T>> y(widened_result(out.data<T>() + begin, count, 1), count);
      switch (kind) {
        case ops::Unary::exp:
          exponentials(y.data(), x.data(), count);
          break;
        case ops::Unary::log:
          by_lanes(
              y.data(), count, [](const auto& a) { return a.log(); }, x.data());
          break;
        case ops::Unary::square_root:
          y = x.sqrt();
          break;
        case ops::Unary::sigmoid:
          by_lanes(
              y.data(), count, [](const auto& a) { return Wide<T>{1} / (Wide<T>{1} + (-a).exp()); }, x.data());
          break;
        case ops::Unary::tanh:
          by_lanes(
              y.data(), count, [](const auto& a) { return a.tanh(); }, x.data());
          break;
      }
      store_narrow(out.data<T>() + begin, y.data(), count);
    });
  });
}

void unary_backward(const Tensor& din, const Tensor& dout, const Tensor& in, const Tensor& out, ops::Unary kind) {
  require_alike("unary_backward", {&din, &dout, &in, &out});
  dispatch_stored("unary_backward", din.dtype(), [&](auto type) {
    using T = decltype(type);
    for_elements(din.numel(), [&](int64_t begin, int64_t end) {
      using W = Wide<T>;
      const int64_t count = end - begin;
      const ConstArrayView<W> g(widened(dout.data<T>() + begin, count, 0), count);
      const ConstArrayView<W> x(widened(in.data<T>() + begin, count, 1), count);
      const ConstArrayView<W> y(widened(out.data<T>() + begin, count, 2), count);
      ArrayView<W> dx(widened_result(din.data<T>() + begin, count, 3), count);
      switch (kind) {
        case ops::Unary::exp:
          dx = g * y;
          break;
        case ops::Unary::log:
          dx = g / x;
          break;
        case ops::Unary::square_root:
          dx = (y == W{0}).select(W{0}, W(0.5) * g / y);
          break;
        case ops::Unary::sigmoid:
          // 1 - y would round where y is near 1.
          by_lanes(
              dx.data(), count,
              [](const auto& dy, const auto& of, const auto& a) { return dy * of / (W{1} + a.exp()); }, g.data(),
              y.data(), x.data());
          break;
        case ops::Unary::tanh:
          dx = g * (W{1} - y.square());
          break;
      }
      store_narrow(din.data<T>() + begin, dx.data(), count);
    });
  });
}

template <typename Bytes>
void select_as(const Tensor& out, const Tensor& mask, const Tensor& a, const Tensor& b) {
  const Strided<4> walk({&out, &mask, &a, &b});
  Bytes* const y = static_cast<Bytes*>(out.raw());
  const uint8_t* const m = mask.data<uint8_t>();
  const Bytes* const x = a.defined() ? static_cast<const Bytes*>(a.raw()) : nullptr;
  const Bytes* const z = b.defined() ? static_cast<const Bytes*>(b.raw()) : nullptr;
  for_runs(walk, [&](const int64_t(&at)[4], int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const bool first = m[at[1] + i * inner_stride(walk, 1)] != 0;
      const Bytes* const from = first ? x : z;
      const int operand = first ? 2 : 3;
      y[at[0] + i * inner_stride(walk, 0)] =
          from == nullptr ? Bytes{0} : from[at[operand] + i * inner_stride(walk, operand)];
    }
  });
}

void select(const Tensor& out, const Tensor& mask, const Tensor& a, const Tensor& b) {
  check_select(out, mask, a, b);
  dispatch_size(size_of(out.dtype()), [&](auto bytes) { select_as<decltype(bytes)>(out, mask, a, b); });
}

}  // namespace

void bind_pointwise() {
  ops::binary.bind(DeviceKind::cpu, binary);
  ops::binary_backward.bind(DeviceKind::cpu, binary_backward);
  ops::unary.bind(DeviceKind::cpu, unary);
  ops::unary_backward.bind(DeviceKind::cpu, unary_backward);
  ops::select.bind(DeviceKind::cpu, select);
}

}  // namespace quire::cpu
