#include "core/ranks/cpu_collective.h"

#include <algorithm>
#include <array>

#include "core/check.h"

namespace quire {

namespace {

CpuCollective checked(CpuCollective operation, size_t ranks) {
  QUIRE_CHECK(operation.values.device() == kCpu, "collectives of the CPU cannot sum what lies on {}",
              name_of(operation.values.device().kind));
  QUIRE_CHECK(operation.bounds.size() == ranks + 1 && operation.bounds.back() <= operation.values.numel(),
              "ranks: {} bounds for {} ranks", operation.bounds.size(), ranks);
  return operation;
}

}  // namespace

CpuCollective CpuCollective::all_reduce(const Tensor& values, size_t ranks) {
  const auto size = static_cast<int64_t>(ranks);
  PartBounds bounds;
  for (int64_t rank = 0; rank <= size; ++rank) bounds.push_back(values.numel() * rank / size);
  return checked({values.reshape({values.numel()}), std::move(bounds), true, true}, ranks);
}

CpuCollective CpuCollective::reduce_scatter(const Tensor& values, const PartBounds& bounds, size_t ranks) {
  return checked({values, bounds, true, false}, ranks);
}

CpuCollective CpuCollective::all_gather(const Tensor& values, const PartBounds& bounds, size_t ranks) {
  return checked({values, bounds, false, true}, ranks);
}

template <typename T>
void sum_in_rank_order(std::span<const T* const> parts, T* to, int64_t count) {
  constexpr int64_t kBlock = 4096;
  std::array<T, kBlock> sum;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t width = std::min(kBlock, count - begin);
    std::fill_n(sum.begin(), width, T{0});
    for (const T* part : parts) {
      const T* const values = part + begin;
      for (int64_t i = 0; i < width; ++i) sum[static_cast<size_t>(i)] += values[i];
    }
    std::copy_n(sum.begin(), width, to + begin);
  }
}

template void sum_in_rank_order(std::span<const float* const> parts, float* to, int64_t count);
template void sum_in_rank_order(std::span<const double* const> parts, double* to, int64_t count);

}  // namespace quire
