// Runs the table of op cases on the CUDA device: a GPU, or the host in its place (tests/support/cuda_shim).
#include <gtest/gtest.h>

#include "kernels/op.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

// Their types are part of the case.
bool has_own_types(const OpCase& op_case) {
  return op_case.op == "copy" || op_case.op == "convert";
}

class CudaOpTable : public CudaTestWithParam<size_t> {};

TEST_P(CudaOpTable, AgreesWithReferenceAndRepeats) {
  const OpCase& op_case = op_cases()[GetParam()];
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && has_own_types(op_case)) continue;
    SCOPED_TRACE(name_of(dtype));
    const std::vector<Tensor> expected = expected_of(op_case, dtype == DType::f32 ? DType::f64 : dtype);
    const std::vector<Tensor> got = run(op_case, dtype, kCuda);
    const std::vector<Tensor> again = run(op_case, dtype, kCuda);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(relative_error(got[i], expected[i]), op_case.tolerance(dtype)) << "output " << i;
      EXPECT_TRUE(same_bits(again[i], got[i])) << "output " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaOpTable, ::testing::Range<size_t>(0, op_cases().size()),
                         [](const auto& tested) { return op_cases()[tested.param].name(); });

using CudaOpTableIsComplete = CudaTest;

TEST_F(CudaOpTableIsComplete, EverySlotIsBound) {
  for (const OpBase* slot : OpBase::all()) {
    EXPECT_TRUE(slot->is_bound(DeviceKind::cuda)) << slot->name() << " has no CUDA kernel";
  }
}

}  // namespace
}  // namespace quire::test
