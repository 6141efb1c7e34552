#include "kernels/pointwise.h"

#include "kernels/checks.h"
#include "kernels/cuda/basic/map.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cuda {

namespace {

template <ops::Binary kind, typename W>
__device__ W apply(W a, W b) {
  if constexpr (kind == ops::Binary::sum) return a + b;
  if constexpr (kind == ops::Binary::difference) return a - b;
  if constexpr (kind == ops::Binary::product) return a * b;
  if constexpr (kind == ops::Binary::quotient) return a / b;
  if constexpr (kind == ops::Binary::maximum) return a >= b || a != a ? a : b;
}

// Computes the gradients da and db of both operands.
template <ops::Binary kind, typename W>
__device__ void apply_backward(W g, W a, W b, W& da, W& db) {
  if constexpr (kind == ops::Binary::sum) {
    da = g;
    db = g;
  } else if constexpr (kind == ops::Binary::difference) {
    da = g;
    db = -g;
  } else if constexpr (kind == ops::Binary::product) {
    da = g * b;
    db = g * a;
  } else if constexpr (kind == ops::Binary::quotient) {
    da = g / b;
    db = -g * a / (b * b);
  } else {
    const bool first = a >= b || a != a;
    da = first ? g : W{0};
    db = first ? W{0} : g;
  }
}

template <ops::Binary kind>
using Kind = std::integral_constant<ops::Binary, kind>;

template <typename Function>
void with_binary(ops::Binary kind, Function&& function) {
  switch (kind) {
    case ops::Binary::sum:
      return function(Kind<ops::Binary::sum>{});
    case ops::Binary::difference:
      return function(Kind<ops::Binary::difference>{});
    case ops::Binary::product:
      return function(Kind<ops::Binary::product>{});
    case ops::Binary::quotient:
      return function(Kind<ops::Binary::quotient>{});
    case ops::Binary::maximum:
      return function(Kind<ops::Binary::maximum>{});
  }
}

// Describes a walk in packs: along its last axis every operand has either neighbouring values or one value for all.
template <int kOperands>
struct Packs {
  bool repeats[kOperands];  // one value for all
  bool aligned[kOperands];
};
// Says whether the walk can take packs of `size` values of type T. The data of undefined operands is null.
template <typename T, int kOperands>
bool find_packs(Packs<kOperands>& packs, const Strided<kOperands>& walk, const void* const (&data)[kOperands],
                int64_t size) {
  if (walk.rank == 0 || walk.size[walk.rank - 1] % size != 0) return false;
  for (int o = 0; o < kOperands; ++o) {
    const int64_t step = walk.stride[o][walk.rank - 1];
    if (step != 0 && step != 1) return false;
    packs.repeats[o] = step == 0;
    packs.aligned[o] = step == 1 && are_aligned({data[o]});
    for (int axis = 0; axis + 1 < walk.rank; ++axis) {
      packs.aligned[o] = packs.aligned[o] && walk.stride[o][axis] % size == 0;
    }
  }
  return true;
}
// Calls function(integral_constant, packs) with the number of values that a thread takes.
template <typename T, int kOperands, typename Function>
void with_packs(const Strided<kOperands>& walk, const void* const (&data)[kOperands], Function&& function) {
  Packs<kOperands> packs{};
  if (find_packs<T>(packs, walk, data, kPackOf<T>)) {
    function(std::integral_constant<int, kPackOf<T>>{}, packs);
  } else {
    function(std::integral_constant<int, 1>{}, packs);
  }
}

template <int kPack, typename T>
__device__ inline Pack<T, kPack> load_or_repeat(const T* from, bool repeats, bool aligned) {
  if constexpr (kPack > 1) {
    if (repeats) {
      Pack<T, kPack> pack;
#pragma unroll
      for (int k = 0; k < kPack; ++k) pack.value[k] = from[0];
      return pack;
    }
  }
  return load<kPack>(from, aligned);
}

template <ops::Binary kind, typename T, int kPack>
__global__ void binary_kernel(T* y, const T* a, const T* b, Strided<3> walk, Packs<3> packs) {
  for (int64_t i = first_element() * kPack; i < walk.count; i += element_stride() * kPack) {
    int64_t at[3];
    walk.find(i, at);
    const Pack<T, kPack> left = load_or_repeat<kPack>(a + at[1], packs.repeats[1], packs.aligned[1]);
    const Pack<T, kPack> right = load_or_repeat<kPack>(b + at[2], packs.repeats[2], packs.aligned[2]);
    Pack<T, kPack> out;
#pragma unroll
    for (int k = 0; k < kPack; ++k) out.value[k] = narrow<T>(apply<kind>(wide(left.value[k]), wide(right.value[k])));
    store<kPack>(y + at[0], out, packs.aligned[0]);
  }
}

void binary(const Tensor& out, const Tensor& a, const Tensor& b, ops::Binary kind) {
  check_binary(out, a, b);
  const Strided<3> walk({&out, &a, &b});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    with_packs<T>(walk, {out.raw(), a.raw(), b.raw()}, [&](auto pack, const Packs<3>& packs) {
      constexpr int kPack = decltype(pack)::value;
      with_binary(kind, [&](auto of_kind) {
        launch(binary_kernel<decltype(of_kind)::value, T, kPack>, blocks_for(walk.count / kPack), kBlock, 0,
               out.data<T>(), a.data<T>(), b.data<T>(), walk, packs);
      });
    });
  });
}

template <ops::Binary kind, typename T, int kPack>
__global__ void binary_backward_kernel(T* da, T* db, const T* dout, const T* a, const T* b, Strided<5> walk,
                                       Packs<5> packs) {
  for (int64_t i = first_element() * kPack; i < walk.count; i += element_stride() * kPack) {
    int64_t at[5];
    walk.find(i, at);
    const Pack<T, kPack> given = load_or_repeat<kPack>(dout + at[0], packs.repeats[0], packs.aligned[0]);
    const Pack<T, kPack> left = load_or_repeat<kPack>(a + at[1], packs.repeats[1], packs.aligned[1]);
    const Pack<T, kPack> right = load_or_repeat<kPack>(b + at[2], packs.repeats[2], packs.aligned[2]);
    Pack<T, kPack> first;
    Pack<T, kPack> second;
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      Wide<T> of_a;
      Wide<T> of_b;
      apply_backward<kind>(wide(given.value[k]), wide(left.value[k]), wide(right.value[k]), of_a, of_b);
      first.value[k] = narrow<T>(of_a);
      second.value[k] = narrow<T>(of_b);
    }
    if (da != nullptr) store<kPack>(da + at[3], first, packs.aligned[3]);
    if (db != nullptr) store<kPack>(db + at[4], second, packs.aligned[4]);
  }
}

template <typename T>
T* data_if(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

void binary_backward(const Tensor& da, const Tensor& db, const Tensor& dout, const Tensor& a, const Tensor& b,
                     ops::Binary kind) {
  check_binary_backward(da, db, dout, a, b);
  const Strided<5> walk({&dout, &a, &b, &da, &db});
  dispatch(dout.dtype(), [&](auto type) {
    using T = decltype(type);
    const void* const data[5] = {dout.raw(), a.raw(), b.raw(), data_if<T>(da), data_if<T>(db)};
    with_packs<T>(walk, data, [&](auto pack, const Packs<5>& packs) {
      constexpr int kPack = decltype(pack)::value;
      with_binary(kind, [&](auto of_kind) {
        launch(binary_backward_kernel<decltype(of_kind)::value, T, kPack>, blocks_for(walk.count / kPack), kBlock, 0,
               data_if<T>(da), data_if<T>(db), dout.data<T>(), a.data<T>(), b.data<T>(), walk, packs);
      });
    });
  });
}

template <ops::Unary kind, typename T>
struct Apply {
  using W = Wide<T>;
  __device__ void operator()(W* y, const W* in) const {
    const W x = in[0];
    if constexpr (kind == ops::Unary::exp) y[0] = std::exp(x);
    if constexpr (kind == ops::Unary::log) y[0] = std::log(x);
    if constexpr (kind == ops::Unary::square_root) y[0] = std::sqrt(x);
    if constexpr (kind == ops::Unary::sigmoid) y[0] = W{1} / (W{1} + std::exp(-x));
    if constexpr (kind == ops::Unary::tanh) y[0] = std::tanh(x);
  }
};

// Computes the gradient from dout, in and out.
template <ops::Unary kind, typename T>
struct ApplyBackward {
  using W = Wide<T>;
  __device__ void operator()(W* dx, const W* in) const {
    const W g = in[0];
    const W y = in[2];
    if constexpr (kind == ops::Unary::exp) dx[0] = g * y;
    if constexpr (kind == ops::Unary::log) dx[0] = g / in[1];
    if constexpr (kind == ops::Unary::square_root) dx[0] = y == 0 ? W{0} : W(0.5) * g / y;
    if constexpr (kind == ops::Unary::sigmoid) dx[0] = g * y / (W{1} + std::exp(in[1]));
    if constexpr (kind == ops::Unary::tanh) dx[0] = g * (W{1} - y * y);
  }
};

// Calls function(type, integral_constant of the kind).
template <typename Function>
void with_unary(DType dtype, ops::Unary kind, Function&& function) {
  dispatch(dtype, [&](auto type) {
    switch (kind) {
      case ops::Unary::exp:
        return function(type, std::integral_constant<ops::Unary, ops::Unary::exp>{});
      case ops::Unary::log:
        return function(type, std::integral_constant<ops::Unary, ops::Unary::log>{});
      case ops::Unary::square_root:
        return function(type, std::integral_constant<ops::Unary, ops::Unary::square_root>{});
      case ops::Unary::sigmoid:
        return function(type, std::integral_constant<ops::Unary, ops::Unary::sigmoid>{});
      case ops::Unary::tanh:
        return function(type, std::integral_constant<ops::Unary, ops::Unary::tanh>{});
    }
  });
}

void unary(const Tensor& out, const Tensor& in, ops::Unary kind) {
  require_alike("unary", {&out, &in});
  with_unary(out.dtype(), kind, [&](auto type, auto of_kind) {
    using T = decltype(type);
    map<T>(Apply<decltype(of_kind)::value, T>{}, {&out}, {&in});
  });
}

void unary_backward(const Tensor& din, const Tensor& dout, const Tensor& in, const Tensor& out, ops::Unary kind) {
  require_alike("unary_backward", {&din, &dout, &in, &out});
  with_unary(din.dtype(), kind, [&](auto type, auto of_kind) {
    using T = decltype(type);
    map<T>(ApplyBackward<decltype(of_kind)::value, T>{}, {&din}, {&dout, &in, &out});
  });
}

template <typename Bytes>
__global__ void select_kernel(Bytes* y, const uint8_t* mask, const Bytes* a, const Bytes* b, Strided<4> walk) {
  for (int64_t i = first_element(); i < walk.count; i += element_stride()) {
    int64_t at[4];
    walk.find(i, at);
    const bool first = mask[at[1]] != 0;
    const Bytes* const from = first ? a : b;
    y[at[0]] = from == nullptr ? Bytes{0} : from[first ? at[2] : at[3]];
  }
}

template <typename Bytes>
void select_as(const Tensor& out, const Tensor& mask, const Tensor& a, const Tensor& b) {
  const Strided<4> walk({&out, &mask, &a, &b});
  const auto data = [](const Tensor& x) { return x.defined() ? static_cast<const Bytes*>(x.raw()) : nullptr; };
  launch(select_kernel<Bytes>, blocks_for(walk.count), kBlock, 0, static_cast<Bytes*>(out.raw()), mask.data<uint8_t>(),
         data(a), data(b), walk);
}

void select(const Tensor& out, const Tensor& mask, const Tensor& a, const Tensor& b) {
  check_select(out, mask, a, b);
  dispatch_size(size_of(out.dtype()), [&](auto bytes) { select_as<decltype(bytes)>(out, mask, a, b); });
}

}  // namespace

void bind_pointwise() {
  ops::binary.bind(DeviceKind::cuda, binary);
  ops::binary_backward.bind(DeviceKind::cuda, binary_backward);
  ops::unary.bind(DeviceKind::cuda, unary);
  ops::unary_backward.bind(DeviceKind::cuda, unary_backward);
  ops::select.bind(DeviceKind::cuda, select);
}

}  // namespace quire::cuda
