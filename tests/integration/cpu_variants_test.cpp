// Checks which CPU kernels are chosen at start.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/program.h"

namespace quire::test {
namespace {

std::vector<std::string> built_variants() {
  std::vector<std::string> variants;
  std::istringstream list(QUIRE_CPU_VARIANTS);
  for (std::string name; std::getline(list, name, ',');) variants.push_back(name);
  return variants;
}

bool runs(const std::string& variant) {
  return variant != "v4" || (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                             __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                             __builtin_cpu_supports("avx512vl") != 0);
}

ProgramResult version_with(const std::string& variant) {
  ProgramOptions options;
  options.environment = {{"QUIRE_CPU", variant}};
  return run_quire({"--version"}, options);
}

TEST(CpuVariants, EachOneThatWasBuiltCanBeAskedFor) {
  for (const std::string& variant : built_variants()) {
    const ProgramResult result = version_with(variant);
    if (runs(variant)) {
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_NE(result.out.find("cpu-" + variant), std::string::npos) << result.out;
    } else {
      EXPECT_NE(result.out.find("this processor has no AVX-512"), std::string::npos) << result.out;
    }
  }
}

TEST(CpuVariants, TheBestOfThemIsChosen) {
  std::string best;
  for (const std::string name : {"v3", "v4", "native"}) {
    const std::vector<std::string> built = built_variants();
    if (std::find(built.begin(), built.end(), name) != built.end() && runs(name)) best = name;
  }
  EXPECT_NE(run_quire({"--version"}).out.find("cpu-" + best), std::string::npos);
}

TEST(CpuVariants, OneThatDoesNotExistIsAnError) {
  EXPECT_NE(version_with("v9").out.find("QUIRE_CPU is v9, not v3, v4 or native"), std::string::npos);
  ProgramOptions options;
  options.environment = {{"QUIRE_CPU", "v9"}};
  const ProgramResult result =
      run_quire({"bench", QUIRE_SOURCE_DIR "/configs/quickstart.yaml", "--steps", "1"}, options);
  EXPECT_EQ(result.code, 2);
  ASSERT_EQ(result.errors().size(), 1U);
  EXPECT_NE(result.errors()[0].find("no CPU kernels could be loaded"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace quire::test
