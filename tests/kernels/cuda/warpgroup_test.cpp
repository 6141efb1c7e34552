// Products of warpgroups on the host: operands in shared memory against plain products and against the layouts that
// CUTLASS describes them by, what must be waited for, and which calls of attention run by them.
#include "kernels/cuda/warpgroup.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

using namespace quire::cuda;

constexpr Device kCuda{DeviceKind::cuda, 0};
constexpr int kLines = 136;

// Kernels are chosen for another device while it lives.
struct Capability {
  explicit Capability(int major, int minor = 0) { shim::set_compute_capability(major, minor); }
  Capability(const Capability&) = delete;
  Capability& operator=(const Capability&) = delete;
  ~Capability() { shim::set_compute_capability(9, 0); }
};

// Where CuTe puts value (line, feature) of lines of 64 values swizzled by 128 bytes, in values: Swizzle<3, 4, 3> over
// bytes, and ((8, m), (T, 2)):((8T, SBO), (1, T)) in the K-major form, ((T, 8, m), (8, k)):((1, T, LBO), (8T, SBO)) in
// the MN-major one (cute/atom/mma_traits_sm90_gmma.hpp), T = 8, SBO = 512 values, LBO = 64 values a line.
int place_in_cute(int line, int feature, int lines) {
  const int bytes =
      2 * (line % 8 * 64 + line / 8 * 512 + feature % 8 + feature % 64 / 8 * 8 + feature / 64 * 64 * lines);
  return (bytes ^ (bytes >> 7 & 7) << 4) / 2;
}

template <int kWidth>
void expect_places_of_cute() {
  std::vector<bfloat16> memory(static_cast<size_t>(kWidth * kLines));
  const SharedPanels<kWidth, kLines> panels{memory.data()};
  for (int line = 0; line < kLines; ++line) {
    for (int f = 0; f < kWidth; ++f) {
      EXPECT_EQ(panels.chunk(line, f / 8) + f % 8 - memory.data(), place_in_cute(line, f, kLines)) << line << " " << f;
    }
  }
}

TEST(Warpgroups, PanelsLieAsCutlassDescribesThem) {
  expect_places_of_cute<64>();
  expect_places_of_cute<128>();
}

__global__ void operands_kernel(uint64_t* operands) {
  if (threadIdx.x != 0) return;
  const SharedPanels<128, kLines> panels{first_panel()};
  operands[0] = panels.along(0, 0);
  operands[1] = panels.along(64, 80) - operands[0];
  operands[2] = panels.across(0);
  operands[3] = panels.across(48) - operands[2];
}

// What make_gmma_desc makes of the same layouts.
TEST(Warpgroups, OperandsAreDescribedAsByCutlass) {
  std::vector<uint64_t> operands(4);
  launch(operands_kernel, dim3(1), kWarp, 4096, operands.data());
  const auto field = [](uint64_t bits, int first, int count) { return bits >> first & ((1U << count) - 1); };
  for (const size_t n : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(field(operands[n], 0, 14) * 16 % 1024, 0);
    EXPECT_EQ(field(operands[n], 32, 14) * 16, 1024);
    EXPECT_EQ(field(operands[n], 49, 3), 0);
    EXPECT_EQ(field(operands[n], 62, 2), 1);
  }
  EXPECT_EQ(field(operands[2], 16, 14) * 16, kLines * 128);
  EXPECT_EQ(operands[1] * 16, 2 * (kLines * 64 + 64 * 64 + 16));
  EXPECT_EQ(operands[3] * 16, 2 * 48 * 64);
}

enum class Left { shared, registers };
enum class Right { along, across };

// 64 lines of x from line 8 on, times kColumns lines of y from line 8 on over its features, or times kColumns features
// of 64 lines of y from line 16 on.
template <int kWidth, int kColumns>
__global__ void products_kernel(float* sums, const bfloat16* x, const bfloat16* y, Left left, Right right) {
  const SharedPanels<kWidth, 72> rows{first_panel()};
  const SharedPanels<kWidth, kLines> columns{rows.begin + rows.kValues};
  const int thread = static_cast<int>(threadIdx.x);
  for (int item = thread; item < kLines * rows.kChunks; item += kGroupThreads) {
    const int line = item / rows.kChunks;
    const int chunk = item % rows.kChunks;
    if (line < 72) copy_later(rows.chunk(line, chunk), x + item * 8, true);
    copy_later(columns.chunk(line, chunk), y + item * 8, line != 20);
  }
  publish_copies();
  __syncthreads();
  const int warp = thread / kWarp;
  const int row = warp * 16 + thread % kWarp / 4;
  const int pair = thread % 4 * 2;
  SumFragment totals[kColumns / 8];
  for (SumFragment& total : totals) {
    for (float& value : total.x) value = 1;
  }
  begin_products();
  for (int step = 0; step < 4; ++step) {
    const SharedOperand of_columns =
        right == Right::along ? columns.along(8, step * 16) : columns.across(16 + step * 16);
    if (left == Left::shared) {
      if (right == Right::along) {
        multiply_later<false>(totals, rows.along(8, step * 16), of_columns, step > 0);
      } else {
        multiply_later<true>(totals, rows.along(8, step * 16), of_columns, step > 0);
      }
      continue;
    }
    LeftFragment fragment;
    for (int n = 0; n < 4; ++n) {
      const bfloat16* const from = x + (8 + row + n % 2 * 8) * kWidth + step * 16 + n / 2 * 8 + pair;
      fragment.x[n] = cuda::packed(static_cast<float>(from[0]), static_cast<float>(from[1]));
    }
    if (right == Right::along) {
      multiply_later<false>(totals, fragment, of_columns, step > 0);
    } else {
      multiply_later<true>(totals, fragment, of_columns, step > 0);
    }
  }
  end_products();
  await_products<0>(totals);
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int i = 0; i < 4; ++i) sums[(row + i / 2 * 8) * kColumns + n * 8 + pair + i % 2] = totals[n].x[i];
  }
}

template <int kWidth, int kColumns>
void expect_products(Left left, Right right) {
  std::vector<bfloat16> x(72 * kWidth);
  std::vector<bfloat16> y(kLines * kWidth);
  for (size_t n = 0; n < x.size(); ++n) x[n] = bfloat16(static_cast<float>(n * 37 % 251) - 125.0F);
  for (size_t n = 0; n < y.size(); ++n) y[n] = bfloat16(static_cast<float>(n * 53 % 241) - 120.0F);
  std::vector<float> sums(64 * kColumns);
  const size_t bytes = (72 + kLines) * kWidth * sizeof(bfloat16) + SharedPanels<64, 8>::kAlignment;
  launch(products_kernel<kWidth, kColumns>, dim3(1), kGroupThreads, bytes, sums.data(), x.data(), y.data(), left,
         right);
  const auto value = [](const std::vector<bfloat16>& of, int line, int f) {
    return static_cast<float>(of[static_cast<size_t>(line) * kWidth + static_cast<size_t>(f)]);
  };
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      float wanted = 0;
      for (int k = 0; k < 64; ++k) {
        const int line = right == Right::along ? 8 + column : 16 + k;
        const float other = line == 20 ? 0 : value(y, line, right == Right::along ? k : column);
        wanted += value(x, 8 + row, k) * other;
      }
      ASSERT_EQ(sums[static_cast<size_t>(row * kColumns + column)], wanted) << row << " " << column;
    }
  }
}

TEST(Warpgroups, OperandsComeFromPanelsAndRegisters) {
  for (const Left left : {Left::shared, Left::registers}) {
    for (const Right right : {Right::along, Right::across}) {
      expect_products<64, 64>(left, right);
      expect_products<128, 64>(left, right);
      expect_products<128, 128>(left, right);
    }
    expect_products<64, 128>(left, Right::along);
  }
}

enum class Fault { none, unpublished, not_begun, not_awaited, early, overwritten, left_open };

__global__ void faulty_kernel(float* sums, const bfloat16* from, Fault fault) {
  const SharedPanels<64, 64> panels{first_panel()};
  for (int item = static_cast<int>(threadIdx.x); item < 64 * 8; item += kGroupThreads) {
    copy_later(panels.chunk(item / 8, item % 8), from + item * 8, true);
  }
  if (fault == Fault::unpublished) {
    await_copies();
  } else if (fault != Fault::early) {
    publish_copies();
  }
  __syncthreads();
  SumFragment totals[8] = {};
  if (fault != Fault::not_begun) begin_products();
  multiply_later(totals, panels.along(0, 0), panels.along(0, 0), false);
  if (fault != Fault::left_open) end_products();
  if (fault == Fault::overwritten) {
    for (int item = static_cast<int>(threadIdx.x); item < 64 * 64; item += kGroupThreads)
      panels.begin[item] = bfloat16(0);
    __syncthreads();
  }
  float before = 0;
  for (const SumFragment& total : totals) before += total.x[0] + total.x[3];
  await_products<0>(totals);
  float after = 0;
  for (const SumFragment& total : totals) after += total.x[0] + total.x[3];
  sums[threadIdx.x] = fault == Fault::not_awaited ? before : after;
  if (fault == Fault::early) publish_copies();
}

std::vector<float> sums_with(Fault fault) {
  std::vector<bfloat16> from(64 * 64, bfloat16(1.0F));
  std::vector<float> sums(kGroupThreads);
  launch(faulty_kernel, dim3(1), kGroupThreads, 64 * 64 * 2 + SharedPanels<64, 8>::kAlignment, sums.data(), from.data(),
         fault);
  return sums;
}

TEST(Warpgroups, WhatIsNotWaitedForIsNotThere) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "these are races";
#endif
  const std::vector<float> wanted(kGroupThreads, 2 * 8 * 16);
  EXPECT_EQ(sums_with(Fault::none), wanted);
  for (const Fault fault : {Fault::not_awaited, Fault::early, Fault::overwritten}) {
    EXPECT_NE(sums_with(fault), wanted) << static_cast<int>(fault);
  }
}

TEST(WarpgroupsDeathTest, WhatTheInstructionsDemandIsDemanded) {
  EXPECT_DEATH(sums_with(Fault::unpublished), "before copies are published");
  EXPECT_DEATH(sums_with(Fault::not_begun), "before begin_products");
  EXPECT_DEATH(sums_with(Fault::left_open), "before its products have ended");
}

// Products by warpgroups: of the forward pass, of the backward pass for queries and keys, and for position terms.
struct Products {
  bool forward, backward, terms;
  bool operator==(const Products&) const = default;
};

Products products_of(AttentionForm form) {
  form.rows = 1;
  form.queries = 3;
  form.heads = form.kv_heads = 1;
  ops::AttentionInputs in = attention_inputs(form, 4);
  for (Tensor* t : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v, &in.r})
    *t = on_device(converted(*t, DType::bf16), kCuda);
  for (Tensor* t : {&in.cache_head, &in.first_visible, &in.bias, &in.u, &in.v_bias}) {
    *t = on_device(converted(*t, DType::f32), kCuda);
  }
  const Tensor out = Tensor::zeros({1, 3, 1, form.value_size}, DType::bf16, kCuda);
  const Tensor lse = Tensor::zeros({1, 1, 3}, DType::f32, kCuda);
  ops::AttentionGradients gradients;
  gradients.dq = Tensor::empty_like(in.q);
  gradients.dk = Tensor::empty_like(in.k);
  const int64_t before = shim::warpgroup_products();
  ops::attention(out, lse, in);
  const int64_t between = shim::warpgroup_products();
  ops::attention_backward(gradients, out, out, lse, in);
  const int64_t behind = shim::warpgroup_products();
  ops::AttentionGradients of_terms;
  if (in.bias.defined()) of_terms.dbias = Tensor::empty_like(in.bias);
  if (in.r.defined()) of_terms.dr = Tensor::empty_like(in.r);
  ops::attention_backward(of_terms, out, out, lse, in);
  return {between > before, behind > between, shim::warpgroup_products() > behind};
}

TEST(Warpgroups, TakeWhatTheyHaveKernelsFor) {
  constexpr Products kAll{true, true, true};
  constexpr Products kBoth{true, true, false};
  constexpr Products kForward{true, false, false};
  constexpr Products kNeither{false, false, false};
  const AttentionForm form{.size = 64, .value_size = 64, .slots = 2, .bias = true};
  EXPECT_EQ(products_of(form), kBoth);
  const auto with = [&](auto change) {
    AttentionForm changed = form;
    change(changed);
    return products_of(changed);
  };
  EXPECT_EQ(with([](AttentionForm& f) { f.size = 128; }), kBoth);
  EXPECT_EQ(with([](AttentionForm& f) { f.size = f.value_size = 40; }), kBoth);
  EXPECT_EQ(with([](AttentionForm& f) { f.size = f.value_size = 32; }), kNeither);
  EXPECT_EQ(with([](AttentionForm& f) { f.size = 44; }), kNeither);
  EXPECT_EQ(with([](AttentionForm& f) { f.value_size = 136; }), kNeither);
  EXPECT_EQ(with([](AttentionForm& f) { f.relative = true; }), kAll);
  EXPECT_EQ(with([](AttentionForm& f) {
              f.relative = true;
              f.size = 72;
            }),
            kForward);
  EXPECT_EQ(with([](AttentionForm& f) { f.dropout = 0.5; }), kNeither);
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 9}, {10, 0}, {12, 0}}) {
    const Capability other(major, minor);
    EXPECT_EQ(products_of(form), kNeither) << major;
  }
  ASSERT_EQ(::setenv("QUIRE_CUDA_WARPGROUPS", "0", 1), 0);
  EXPECT_EQ(products_of(form), kNeither);
  ::setenv("QUIRE_CUDA_WARPGROUPS", "no", 1);
  EXPECT_THROW(products_of(form), Error);
  // And before anything is computed.
  EXPECT_ERROR(cuda::require_known_environment(), ErrorKind::config, "QUIRE_CUDA_WARPGROUPS is 'no': set it to 0 or 1");
  ::unsetenv("QUIRE_CUDA_WARPGROUPS");
  EXPECT_NO_THROW(cuda::require_known_environment());
}

// What they take is taken by other kernels on other devices.
TEST(Warpgroups, OtherKernelsComputeTheSame) {
  const Capability ampere(8);
  int run_here = 0;
  for (const OpCase& op_case : op_cases()) {
    if (op_case.name().find("panels") == std::string::npos) continue;
    const int64_t before = shim::warpgroup_products();
    const std::vector<Tensor> got = run(op_case, DType::bf16, kCuda);
    EXPECT_EQ(shim::warpgroup_products(), before);
    const std::vector<Tensor> wanted = wanted_of(op_case, DType::bf16);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(relative_error(got[i], wanted[i]), op_case.tolerance(DType::bf16)) << op_case.name() << " " << i;
    }
    ++run_here;
  }
  EXPECT_GE(run_here, 10);
}

}  // namespace
}  // namespace quire::test
