#include "kernels/cuda/suitability.h"

#include <gtest/gtest.h>

namespace quire::cuda {
namespace {

TEST(CudaSuitability, OldGpusAreRefusedByName) {
  EXPECT_EQ(why_unsuitable("Tesla T4", 7, 5), "Tesla T4 has compute capability 7.5; quire needs 8.0 (Ampere) or newer");
  EXPECT_NE(why_unsuitable("Tesla V100", 7, 0), "");
  EXPECT_EQ(why_unsuitable("NVIDIA A100", 8, 0), "");
  EXPECT_EQ(why_unsuitable("NVIDIA H200", 9, 0), "");
  EXPECT_EQ(why_unsuitable("a later one", 12, 0), "");
}

TEST(CudaSuitability, AGpuWithoutCodeIsToldHowToGetIt) {
  EXPECT_EQ(no_code("NVIDIA B200", 10, 0),
            "NVIDIA B200 has compute capability 10.0, for which this build has no code: configure it with "
            "-DQUIRE_CUDA_CHIPS=all and build again");
}

TEST(CudaSuitability, AnOldDriverIsNamedWithBothVersions) {
  EXPECT_EQ(driver_too_old(12040, 13000),
            "the NVIDIA driver is for CUDA 12.4 and older, and this program needs one for CUDA 13.0");
}

}  // namespace
}  // namespace quire::cuda
