// Tests the fragments of tensor cores on the host: compares the substitute for the instructions with CUTLASS's
// descriptions of their layouts, and the operands that SharedLines makes with plain products.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/mma.h"

namespace quire::cuda {
namespace {

// A layout of CuTe for lanes (4, 8) and the values of a lane, two by two: the offset in a matrix whose columns follow
// each other (cute/atom/mma_traits_sm80.hpp, SM80_16x8x16_F32BF16BF16F32_TN).
struct Layout {
  int lane_strides[2];
  int value_strides[3];
  int rows;
  int offset(int lane, int value) const {
    return lane % 4 * lane_strides[0] + lane / 4 * lane_strides[1] + value % 2 * value_strides[0] +
           value / 2 % 2 * value_strides[1] + value / 4 * value_strides[2];
  }
  int row(int lane, int value) const { return offset(lane, value) % rows; }
  int column(int lane, int value) const { return offset(lane, value) / rows; }
};
constexpr Layout kLeft{{32, 1}, {16, 8, 128}, 16};  // 16 x 16
constexpr Layout kRight{{16, 1}, {8, 64, 0}, 8};    // 8 x 16, transposed
constexpr Layout kSums{{32, 1}, {16, 8, 0}, 16};    // 16 x 8

float left_value(int row, int column) {
  return static_cast<float>(row * 16 + column - 100);
}
float right_value(int row, int column) {
  return static_cast<float>((row * 8 + column) * 7 % 32 - 11);
}

__global__ void fragments_kernel(float* sums) {
  const int lane = static_cast<int>(threadIdx.x);
  LeftFragment left;
  RightFragment right;
  SumFragment mine;
  for (int n = 0; n < 4; ++n) {
    left.x[n] = packed(left_value(kLeft.row(lane, 2 * n), kLeft.column(lane, 2 * n)),
                       left_value(kLeft.row(lane, 2 * n + 1), kLeft.column(lane, 2 * n + 1)));
    mine.x[n] = static_cast<float>(n);
  }
  for (int n = 0; n < 2; ++n) {
    right.x[n] = packed(right_value(kRight.column(lane, 2 * n), kRight.row(lane, 2 * n)),
                        right_value(kRight.column(lane, 2 * n + 1), kRight.row(lane, 2 * n + 1)));
  }
  multiply_add(mine, left, right);
  for (int i = 0; i < 4; ++i) sums[kSums.row(lane, i) * 8 + kSums.column(lane, i)] = mine.x[i] - static_cast<float>(i);
}

TEST(TensorCores, FragmentsLieAsCutlassDescribesThem) {
  std::vector<float> sums(128, -1);
  launch(fragments_kernel, dim3(1), kWarp, 0, sums.data());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float expected = 0;
      for (int k = 0; k < 16; ++k) expected += left_value(row, k) * right_value(k, column);
      EXPECT_EQ(sums[static_cast<size_t>(row * 8 + column)], expected) << row << " " << column;
    }
  }
}

enum class Transposed { neither, left, right };

// Multiplies x, lines 16..31 and values 32..47 of 32 lines, or its transpose, by 16 columns of y.
template <int kWidth>
__global__ void lines_kernel(float* sums, const bfloat16* x, const bfloat16* y, Transposed transposed) {
  const SharedLines<kWidth> left{dynamic_shared<bfloat16>()};
  const SharedLines<kWidth> right{left.begin + 32 * kWidth};
  const int lane = static_cast<int>(threadIdx.x);
  for (int item = lane; item < 32 * left.kChunks; item += kWarp) {
    const int line = item / left.kChunks;
    const int chunk = item % left.kChunks;
    copy_later(left.chunk(line, chunk), x + item * 8, true);
    copy_later(right.chunk(line, chunk), y + item * 8, line != 20);
  }
  await_copies();
  __syncthreads();
  SumFragment totals[2] = {};
  RightFragment columns[2];
  const LeftFragment rows = transposed == Transposed::left ? left.left_transposed(16, 32) : left.left(16, 32);
  if (transposed == Transposed::right) {
    right.right_transposed(columns, 16, 48);
  } else {
    right.right(columns, 16, 48);
  }
  for (int n = 0; n < 2; ++n) {
    multiply_add(totals[n], rows, columns[n]);
    for (int i = 0; i < 4; ++i) {
      sums[(lane / 4 + i / 2 * 8) * 16 + n * 8 + lane % 4 * 2 + i % 2] = totals[n].x[i];
    }
  }
}

template <int kWidth>
void expect_products(Transposed transposed) {
  std::vector<bfloat16> x(32 * kWidth);
  std::vector<bfloat16> y(32 * kWidth);
  for (size_t n = 0; n < x.size(); ++n) {
    x[n] = bfloat16(static_cast<float>(n * 37 % 251) - 125.0F);
    y[n] = bfloat16(static_cast<float>(n * 53 % 241) - 120.0F);
  }
  std::vector<float> sums(256);
  const int64_t conflicts = shim::bank_conflicts();
  launch(lines_kernel<kWidth>, dim3(1), kWarp, 64 * kWidth * sizeof(bfloat16), sums.data(), x.data(), y.data(),
         transposed);
  EXPECT_EQ(shim::bank_conflicts(), conflicts);
  const auto value = [](const std::vector<bfloat16>& of, int line, int f) {
    return static_cast<float>(of[static_cast<size_t>(line) * kWidth + static_cast<size_t>(f)]);
  };
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      float expected = 0;
      for (int k = 0; k < 16; ++k) {
        const float left = transposed == Transposed::left ? value(x, 16 + k, 32 + row) : value(x, 16 + row, 32 + k);
        const int line = 16 + (transposed == Transposed::right ? k : column);
        const int f = 48 + (transposed == Transposed::right ? column : k);
        expected += left * (line == 20 ? 0 : value(y, line, f));
      }
      EXPECT_EQ(sums[static_cast<size_t>(row * 16 + column)], expected) << row << " " << column;
    }
  }
}

TEST(TensorCores, OperandsComeFromLinesInSharedMemory) {
  for (const Transposed transposed : {Transposed::neither, Transposed::left, Transposed::right}) {
    expect_products<64>(transposed);
    expect_products<128>(transposed);
  }
}

__global__ void unswizzled_kernel(const bfloat16* lines) {
  uint32_t x[4];
  load_matrices<false>(x, lines + threadIdx.x * 64);
}

TEST(TensorCores, LinesInTheSameBanksAreCounted) {
  alignas(16) static bfloat16 lines[32 * 64];
  const int64_t before = shim::bank_conflicts();
  launch(unswizzled_kernel, dim3(1), kWarp, 0, lines);
  EXPECT_EQ(shim::bank_conflicts(), before + 4);
}

__global__ void copies_kernel(float* to, const float* from, bool wait) {
  float* const shared = dynamic_shared<float>();
  copy_later(shared + threadIdx.x * 4, from + threadIdx.x * 4, true);
  if (wait) await_copies();
  __syncthreads();
  to[threadIdx.x] = shared[(31 - threadIdx.x) * 4];
  __syncthreads();
  if (!wait) await_copies();
}

TEST(TensorCores, CopiesNobodyWaitsForAreNotThere) {
  alignas(16) static float from[128];
  for (int n = 0; n < 128; ++n) from[n] = static_cast<float>(n);
  std::vector<float> to(32);
  launch(copies_kernel, dim3(1), kWarp, sizeof(from), to.data(), from, true);
  for (int n = 0; n < 32; ++n) EXPECT_EQ(to[static_cast<size_t>(n)], 4 * (31 - n));
  launch(copies_kernel, dim3(1), kWarp, sizeof(from), to.data(), from, false);
  int missing = 0;
  for (int n = 0; n < 32; ++n) missing += to[static_cast<size_t>(n)] != static_cast<float>(4 * (31 - n)) ? 1 : 0;
  EXPECT_EQ(missing, 16);
}

__global__ void leaves_kernel(const float* from) {
  copy_later(dynamic_shared<float>() + threadIdx.x * 4, from, true);
}

TEST(TensorCoresDeathTest, ABlockWaitsForItsCopies) {
  alignas(16) static float from[4];
  EXPECT_DEATH(launch(leaves_kernel, dim3(1), kWarp, 512, from), "returns before its copies have ended");
}

}  // namespace
}  // namespace quire::cuda
