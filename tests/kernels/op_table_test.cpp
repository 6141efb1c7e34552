// Runs the table of op cases.
#include <gtest/gtest.h>

#include <set>

#include "core/thread_pool.h"
#include "kernels/op.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

class OpTable : public ::testing::TestWithParam<size_t> {};

TEST_P(OpTable, AgreesWithReferenceOnAnyNumberOfThreads) {
  const OpCase& op_case = op_cases()[GetParam()];
  const std::vector<Tensor> wanted = op_case.reference(inputs_of(op_case, DType::f64));
  for (const DType dtype : {DType::f64, DType::f32}) {
    SCOPED_TRACE(name_of(dtype));
    const std::vector<Tensor> got = op_case.kernel(inputs_of(op_case, dtype));
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(relative_error(got[i], wanted[i]), op_case.tolerance(dtype)) << "output " << i;
    }
    ThreadPool pool(2);
    const ThreadPool::Use use(pool);
    const std::vector<Tensor> again = op_case.kernel(inputs_of(op_case, dtype));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(again[i], got[i])) << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, OpTable, ::testing::Range<size_t>(0, op_cases().size()),
                         [](const auto& tested) { return op_cases()[tested.param].name(); });

TEST(OpTableIsComplete, EverySlotIsBoundAndHasACase) {
  std::set<std::string> covered;
  for (const OpCase& op_case : op_cases()) covered.insert(op_case.op);
  EXPECT_GT(OpBase::all().size(), 30U);
  for (const OpBase* slot : OpBase::all()) {
    EXPECT_TRUE(slot->is_bound(DeviceKind::cpu)) << slot->name() << " has no CPU kernel";
    EXPECT_TRUE(covered.contains(slot->name())) << slot->name() << " has no case in the table";
  }
}

}  // namespace
}  // namespace quire::test
