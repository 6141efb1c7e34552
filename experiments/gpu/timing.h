// Code that the programs that time one operation on a GPU share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/bfloat16.h"
#include "core/error.h"
#include "core/random.h"
#include "core/tensor.h"
#include "kernels/backend.h"

namespace quire {

// Uniform in [-1, 1), on the device; dtype bf16 or f32.
inline Tensor uniform(const Shape& shape, DType dtype, Device device, uint32_t stream) {
  const auto made = [&](auto type) {
    using T = decltype(type);
    std::vector<T> values;
    values.reserve(static_cast<size_t>(shape.numel()));
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const auto bits = philox(RandomKey::of(1, stream), 0, 0, 0, static_cast<uint32_t>(i));
      values.push_back(T(static_cast<float>(bits[0]) * 0x1p-31F - 1));
    }
    return Tensor::from(values, shape).to(device);
  };
  return dtype == DType::bf16 ? made(bfloat16{}) : made(float{});
}

// The best of the repeats, in seconds of one of `calls` that follow each other.
template <typename Function>
double timed(int repeats, int calls, Device device, Function&& function) {
  const auto wait = [&] {
    if (device.kind == DeviceKind::cuda) device_backend(device.kind).synchronize();
  };
  double best = 0;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) function();
    wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
    if (repeat >= 0) best = repeat == 0 ? seconds : std::min(best, seconds);  // the first one warms up
  }
  return best;
}

// "cpu" or "cuda", whose backend is loaded. Throws Error where there is no GPU.
inline Device device_named(const std::string& name) {
  load_backends();
  if (name == "cpu") return kCpu;
  if (load_cuda().gpu.empty()) throw Error(ErrorKind::internal, "no GPU: " + load_cuda().reason);
  return {DeviceKind::cuda, 0};
}
inline std::string gpu_of(Device device) {
  return device.kind == DeviceKind::cuda ? load_cuda().gpu : "";
}

}  // namespace quire
