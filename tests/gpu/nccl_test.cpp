// NCCL on a real GPU, with one rank: joining, the three operations in order with kernels, and the end.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/ranks/ranks.h"
#include "kernels/elementwise.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

TEST(Nccl, OneRankSumsWhatItHas) {
  if (const std::string missing = missing_cuda_device(); !missing.empty()) GTEST_SKIP() << missing;
  const Device gpu{DeviceKind::cuda, 0};
  Ranks one;
  std::unique_ptr<Collectives> collectives;
  try {
    collectives = device_backend(DeviceKind::cuda).connect(one);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::config) throw;
    GTEST_SKIP() << error.what();  // NCCL is missing here
  }
  EXPECT_TRUE(collectives->description().starts_with("NCCL ")) << collectives->description();
  constexpr int64_t kCount = 1 << 20;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor values = Tensor::zeros({kCount}, dtype, gpu);
    const Tensor ones = Tensor::from(std::vector<float>(kCount, 1.0F), {kCount}, gpu);
    const Tensor wide = dtype == DType::f64 ? Tensor::from(std::vector<double>(kCount, 1.0), {kCount}, gpu) : ones;
    for (int step = 0; step < 20; ++step) {
      ops::add(values, values, wide, 1, 1);
      collectives->reduce_scatter(values, {0, kCount});
      collectives->all_gather(values, {0, kCount});
      collectives->all_reduce(values);
      collectives->wait();
    }
    const double sum =
        dtype == DType::f64 ? values.to_vector<double>()[kCount - 1] : values.to_vector<float>()[kCount - 1];
    EXPECT_EQ(sum, 20);
  }
  EXPECT_EQ(collectives->finished(), 120);
}

}  // namespace
}  // namespace quire::test
