#include "kernels/elementwise.h"

#include "kernels/checks.h"
#include "kernels/cuda/map.h"
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

template <typename To, typename From>
__global__ void convert_kernel(To* y, const From* x, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) y[i] = as<To>(x[i]);
}

void convert(const Tensor& out, const Tensor& in) {
  check_convert(out, in);
  dispatch(out.dtype(), [&](auto to) {
    dispatch(in.dtype(), [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      launch(convert_kernel<To, From>, blocks_for(out.numel()), kBlock, 0, out.data<To>(), in.data<From>(),
             out.numel());
    });
  });
}

template <typename Bytes>
__global__ void copy_kernel(Bytes* y, const Bytes* x, Strided<2> walk) {
  for (int64_t i = first_element(); i < walk.count; i += element_stride()) {
    int64_t at[2];
    walk.find(i, at);
    y[at[0]] = x[at[1]];
  }
}

void copy(const Tensor& out, const Tensor& in) {
  check_copy(out, in);
  const Strided<2> walk({&out, &in});
  dispatch_size(size_of(out.dtype()), [&](auto type) {
    using Bytes = decltype(type);
    launch(copy_kernel<Bytes>, blocks_for(walk.count), kBlock, 0, static_cast<Bytes*>(out.raw()),
           static_cast<const Bytes*>(in.raw()), walk);
  });
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
