#include "kernels/elementwise.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/cuda/basic/map.h"
#include "kernels/strided.h"

namespace quire::cuda {

namespace {

template <typename T>
struct AddTerms {
  Wide<T> alpha;
  Wide<T> beta;
  __device__ void operator()(Wide<T>* y, const Wide<T>* x) const { y[0] = alpha * x[0] + beta * x[1]; }
};

void add(const Tensor& out, const Tensor& a, const Tensor& b, double alpha, double beta) {
  require_alike("add", {&out, &a, &b});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    map<T>(AddTerms<T>{static_cast<Wide<T>>(alpha), static_cast<Wide<T>>(beta)}, {&out}, {&a, &b});
  });
}

template <typename T>
struct Multiply {
  __device__ void operator()(Wide<T>* y, const Wide<T>* x) const { y[0] = x[0] * x[1]; }
};

void multiply(const Tensor& out, const Tensor& a, const Tensor& b) {
  require_alike("multiply", {&out, &a, &b});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    map<T>(Multiply<T>{}, {&out}, {&a, &b});
  });
}

template <typename T>
struct Scale {
  Wide<T> alpha;
  __device__ void operator()(Wide<T>* y, const Wide<T>* x) const { y[0] = alpha * x[0]; }
};

void scale(const Tensor& out, const Tensor& in, double alpha) {
  require_alike("scale", {&out, &in});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    map<T>(Scale<T>{static_cast<Wide<T>>(alpha)}, {&out}, {&in});
  });
}

template <typename T>
struct ScaleBy {
  const double* factor;
  __device__ void operator()(Wide<T>* y, const Wide<T>* x) const { y[0] = static_cast<Wide<T>>(*factor) * x[0]; }
};

void scale_by(const Tensor& out, const Tensor& in, const Tensor& factor) {
  check_scale_by(out, in, factor);
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    map<T>(ScaleBy<T>{factor.data<double>()}, {&out}, {&in});
  });
}

template <typename T, int kPack>
__global__ void add_bias_kernel(T* y, const T* x, const Wide<T>* bias, int64_t count, int64_t width, bool aligned) {
  for (int64_t i = first_element() * kPack; i < count; i += element_stride() * kPack) {
    Pack<T, kPack> pack = load<kPack>(x + i, aligned);
    const Pack<Wide<T>, kPack> add = load<kPack>(bias + i % width, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) pack.value[k] = narrow<T>(wide(pack.value[k]) + add.value[k]);
    store<kPack>(y + i, pack, aligned);
  }
}

void add_bias(const Tensor& out, const Tensor& in, const Tensor& bias) {
  check_add_bias(out, in, bias);
  const bool aligned = are_aligned({out.raw(), in.raw(), bias.raw()});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    with_pack<T>(bias.numel(), [&](auto pack) {
      constexpr int kPack = decltype(pack)::value;
      launch(add_bias_kernel<T, kPack>, blocks_for(out.numel() / kPack), kBlock, 0, out.data<T>(), in.data<T>(),
             bias.data<Wide<T>>(), out.numel(), bias.numel(), aligned);
    });
  });
}

template <typename To, typename From>
__device__ To as(From x) {
  if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<From, bfloat16>) {
    return static_cast<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <int kPack, typename To, typename From>
__device__ void convert_at(To* y, const From* x, int64_t first) {
  const Pack<From, kPack> in = load<kPack>(x + first, true);
  Pack<To, kPack> out;
#pragma unroll
  for (int k = 0; k < kPack; ++k) out.value[k] = as<To>(in.value[k]);
  store<kPack>(y + first, out, true);
}

template <typename To, typename From>
__global__ void convert_kernel(To* y, const From* x, int64_t count, bool aligned) {
  constexpr int kPack = kPackOf<std::conditional_t<(sizeof(To) < sizeof(From)), To, From>>;
  const int64_t packs = aligned ? count / kPack : 0;
  for (int64_t i = first_element(); i < packs; i += element_stride()) convert_at<kPack>(y, x, i * kPack);
  for (int64_t i = packs * kPack + first_element(); i < count; i += element_stride()) convert_at<1>(y, x, i);
}

void convert(const Tensor& out, const Tensor& in) {
  check_convert(out, in);
  const bool aligned = are_aligned({out.raw(), in.raw()});
  dispatch(out.dtype(), [&](auto to) {
    dispatch(in.dtype(), [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      const int64_t each = aligned ? static_cast<int64_t>(kVectorBytes / std::min(sizeof(To), sizeof(From))) : 1;
      launch(convert_kernel<To, From>, blocks_for(ceil_div(out.numel(), each)), kBlock, 0, out.data<To>(),
             in.data<From>(), out.numel(), aligned);
    });
  });
}

template <typename Unit>
__global__ void copy_kernel(Unit* y, const Unit* x, Strided<2> walk) {
  for (int64_t i = first_element(); i < walk.count; i += element_stride()) {
    int64_t at[2];
    walk.find(i, at);
    y[at[0]] = x[at[1]];
  }
}

template <typename Unit>
void copy_units(const Tensor& out, const Tensor& in, const Strided<2>& walk) {
  launch(copy_kernel<Unit>, blocks_for(walk.count), kBlock, 0, static_cast<Unit*>(out.raw()),
         static_cast<const Unit*>(in.raw()), walk);
}

// Makes `width` neighbours one element of the walk. Returns false when the walk skips or reverses some of them.
bool take_together(Strided<2>& walk, int64_t width) {
  const int last = walk.rank - 1;
  if (last < 0 || walk.size[last] % width != 0) return false;
  for (const auto& stride : walk.stride) {
    if (stride[last] != 1) return false;
    for (int axis = 0; axis < last; ++axis) {
      if (stride[axis] % width != 0) return false;
    }
  }
  walk.count /= width;
  walk.size[last] /= width;
  for (auto& stride : walk.stride) {
    for (int axis = 0; axis < last; ++axis) stride[axis] /= width;
  }
  return true;
}

void copy(const Tensor& out, const Tensor& in) {
  check_copy(out, in);
  Strided<2> walk({&out, &in});
  const size_t bytes = size_of(out.dtype());
  if (are_aligned({out.raw(), in.raw()}) && take_together(walk, static_cast<int64_t>(kVectorBytes / bytes))) {
    return copy_units<Pack<uint32_t, 4>>(out, in, walk);
  }
  dispatch_size(bytes, [&](auto type) { copy_units<decltype(type)>(out, in, walk); });
}

}  // namespace

void bind_elementwise() {
  ops::add.bind(DeviceKind::cuda, add);
  ops::add_bias.bind(DeviceKind::cuda, add_bias);
  ops::convert.bind(DeviceKind::cuda, convert);
  ops::copy.bind(DeviceKind::cuda, copy);
  ops::multiply.bind(DeviceKind::cuda, multiply);
  ops::scale.bind(DeviceKind::cuda, scale);
  ops::scale_by.bind(DeviceKind::cuda, scale_by);
}

}  // namespace quire::cuda
