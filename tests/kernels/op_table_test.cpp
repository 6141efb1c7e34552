// Runs the table of operations on the CPU: references, types, threads, numeric gradients; and looks for operations that
// the table leaves out.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "autograd/functions/basic.h"
#include "autograd/gradcheck.h"
#include "core/thread_pool.h"
#include "kernels/op.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

class OpTable : public ::testing::TestWithParam<size_t> {};

TEST_P(OpTable, AgreesWithReferenceOnAnyNumberOfThreads) {
  const OpCase& op_case = op_cases()[GetParam()];
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && !op_case.has_bf16_on_cpu) continue;
    SCOPED_TRACE(name_of(dtype));
    const Tensors expected = expected_of(op_case, dtype == DType::f32 ? DType::f64 : dtype);
    const Tensors got = run(op_case, dtype);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(relative_error(got[i], expected[i]), op_case.tolerance(dtype)) << "output " << i;
    }
    ThreadPool pool(2);
    const ThreadPool::Use use(pool);
    const Tensors again = run(op_case, dtype);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(again[i], got[i])) << "output " << i;
  }
}

bool has_numeric_gradient(const OpCase& op_case) {
  return op_case.function && op_case.has_derivative && !op_case.gradients;
}

std::vector<size_t> cases_with_gradients() {
  std::vector<size_t> cases;
  for (size_t i = 0; i < op_cases().size(); ++i) {
    if (has_numeric_gradient(op_cases()[i])) cases.push_back(i);
  }
  return cases;
}

class Gradients : public ::testing::TestWithParam<size_t> {};

TEST_P(Gradients, AgreeWithCentralDifferences) {
  const OpCase& op_case = op_cases()[GetParam()];
  const Tensors inputs = inputs_of(op_case, DType::f64);
  Tensors disturbed;
  int64_t elements = 0;
  for (const size_t leaf : leaves_of(op_case)) {
    disturbed.push_back(inputs[leaf]);
    elements += inputs[leaf].numel();
  }
  int64_t outputs = 0;
  const auto loss = [&](Tape& tape, const Inputs& leaves) {
    std::vector<Variable> variables;
    for (const Tensor& input : inputs) variables.push_back(Variable::constant(input));
    for (size_t i = 0; i < leaves.size(); ++i) variables[leaves_of(op_case)[i]] = leaves[i];
    RandomTensors random(99);
    Variable total;
    outputs = 0;
    for (const Variable& output : op_case.function(tape, variables)) {
      outputs += output.shape().numel();
      const bool is_loss = output.value().dtype() == DType::f64 && output.shape() == Shape{1};
      const Variable sum = is_loss ? output : weighted_sum(tape, output, random.normal(output.shape()));
      total = total.defined() ? add(tape, total, sum) : sum;
    }
    return total;
  };
  // Central differences at step h are off by the third derivative times h^2 / 6, about 1e-10, and by the rounding of
  // the loss over h: values up to 100 times 1e-16 over 1e-5, about 1e-9. Of large inputs some elements are disturbed.
  // Sums over many outputs round too much for that; each function has small cases.
  {
    Tape tape(false);
    std::vector<Variable> leaves;
    for (const Tensor& input : disturbed) leaves.push_back(Variable::constant(input));
    loss(tape, leaves);
  }
  if (outputs > 3000) return;
  const GradcheckResult result = gradcheck(loss, disturbed, 1e-5, 1 + elements / 400);
  EXPECT_LE(result.worst, 2e-8) << result.where;
}

INSTANTIATE_TEST_SUITE_P(, OpTable, ::testing::Range<size_t>(0, op_cases().size()),
                         [](const auto& tested) { return op_cases()[tested.param].name(); });

INSTANTIATE_TEST_SUITE_P(, Gradients, ::testing::ValuesIn(cases_with_gradients()),
                         [](const auto& tested) { return op_cases()[tested.param].name(); });

TEST(OpTableIsComplete, NamesAreUnique) {
  std::set<std::string> names;
  for (const OpCase& op_case : op_cases()) EXPECT_TRUE(names.insert(op_case.name()).second) << op_case.name();
}

// Every operation is called by a case that says what should come out. Counting the calls finds those that functions
// make, such as backward passes.
TEST(OpTableIsComplete, EveryOperationIsBoundAndChecked) {
  for (OpBase* slot : OpBase::all()) slot->reset_stats();
  OpBase::set_timing(true);
  for (const OpCase& op_case : op_cases()) {
    if (op_case.reference || op_case.composition) run(op_case, DType::f64);
  }
  OpBase::set_timing(false);
  EXPECT_GT(OpBase::all().size(), 70U);
  for (const OpBase* slot : OpBase::all()) {
    EXPECT_TRUE(slot->is_bound(DeviceKind::cpu)) << slot->name() << " has no CPU kernel";
    EXPECT_GT(slot->stats().calls, 0) << slot->name() << " is called by no case of the table";
  }
}

// The functions that the headers of autograd/functions declare.
std::set<std::string> declared_functions() {
  std::set<std::string> names;
  const std::regex any(R"((\w+)\(Tape& tape)");
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/autograd/functions")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    for (auto found = std::sregex_iterator(text.begin(), text.end(), any); found != std::sregex_iterator(); ++found) {
      names.insert((*found)[1]);
    }
  }
  return names;
}

TEST(OpTableIsComplete, EveryFunctionHasAReferenceAndAGradient) {
  std::set<std::string> with_reference;
  std::set<std::string> with_gradient;
  for (const OpCase& op_case : op_cases()) {
    if (op_case.reference || op_case.composition) with_reference.insert(op_case.op);
    if (op_case.function && (has_numeric_gradient(op_case) || op_case.gradients)) with_gradient.insert(op_case.op);
  }
  const std::set<std::string> functions = declared_functions();
  EXPECT_GT(functions.size(), 45U);
  for (const std::string& name : functions) {
    EXPECT_TRUE(with_reference.contains(name)) << name << " has no case with a reference";
    EXPECT_TRUE(with_gradient.contains(name)) << name << " has no case that checks its gradient";
  }
}

TEST(Gradcheck, FindsAWrongGradient) {
  // The derivative of |x| times 2 is taken for that of x^2: right at 1 only.
  const auto wrong = [](Tape& tape, const Inputs& in) {
    const Variable detached = scale(tape, in[0], 1).detached();
    return weighted_sum(tape, multiply(tape, in[0], detached), Tensor::from(std::vector<double>{1, 1}, {2}));
  };
  EXPECT_GE(gradcheck(wrong, {Tensor::from(std::vector<double>{1, -3}, {2})}).worst, 0.4);
}

}  // namespace
}  // namespace quire::test
