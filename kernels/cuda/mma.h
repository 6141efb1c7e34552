// Tensor cores: products of small matrices in bf16, added to sums in f32, by the instruction
// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, and the instructions that fill its operands from shared memory
// (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix"; compute capability 8.0 and
// newer). A fragment is the part of a matrix that one lane of the warp holds; whole warps call these functions.
//
// With group = lane / 4 and pair = 2 * (lane % 4), a lane holds
//   of the left 16 x 16 matrix:   rows group, group + 8, and the columns pair, pair + 1 of both halves
//   of the right 16 x 8 matrix:   column group, and the rows pair, pair + 1 of both halves
//   of the 16 x 8 sums:           rows group and group + 8, columns pair and pair + 1
// which is why sums, packed in pairs, are the left operand of another product as they are.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/runtime.h"

namespace quire::cuda {

// A word holds two values, the first one in its lower half.
struct LeftFragment {
  uint32_t x[4];
};
struct RightFragment {
  uint32_t x[2];
};
struct SumFragment {
  float x[4];
};

inline constexpr int kMmaRows = 16;    // of the left matrix
inline constexpr int kMmaColumns = 8;  // of the right matrix
inline constexpr int kMmaDepth = 16;   // the axis that is summed over

__device__ inline void multiply_add(SumFragment& sums, const LeftFragment& left, const RightFragment& right) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums.x[0]), "+f"(sums.x[1]), "+f"(sums.x[2]), "+f"(sums.x[3])
      : "r"(left.x[0]), "r"(left.x[1]), "r"(left.x[2]), "r"(left.x[3]), "r"(right.x[0]), "r"(right.x[1]));
#else
  shim::multiply_add(sums.x, left.x, right.x, __FILE__, __LINE__);
#endif
}

// Loads four matrices of 8 x 8 values. Lane l gives the address of line l % 8 (16 bytes) of matrix l / 8 and gets two
// values of each matrix: line group, columns pair and pair + 1; transposed: lines pair and pair + 1, column group.
template <bool kTransposed>
__device__ inline void load_matrices(uint32_t (&to)[4], const bfloat16* line) {
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(line));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
#else
  shim::load_matrices(to, line, kTransposed, __FILE__, __LINE__);
#endif
}

// Copies 16 bytes from global to shared memory, or zeros when they are not there, while the thread goes on. Both
// addresses are multiples of 16; `from` is one that may be read in any case.
__device__ inline void copy_later(void* shared, const void* from, bool there) {
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0)
               : "memory");
#else
  shim::copy_later(shared, from, there ? 16 : 0);
#endif
}
// Waits for the copies of this thread. Those of other threads are complete after the next barrier.
__device__ inline void await_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  shim::await_copies();
#endif
}

__device__ inline uint32_t packed(float first, float second) {
#ifdef __CUDACC__
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#else
  return bfloat16(first).bits | static_cast<uint32_t>(bfloat16(second).bits) << 16;
#endif
}

// Return the two values of a word.
__device__ inline float lower_half(uint32_t both) {
  return std::bit_cast<float>(both << 16);
}
__device__ inline float upper_half(uint32_t both) {
  return std::bit_cast<float>(both & 0xffff0000U);
}

// Types that are read or written at once: eight values in bf16, and two sums.
struct alignas(16) Words {
  uint32_t x[4];
};
struct alignas(8) TwoSums {
  float x[2];
};

// A matrix in shared memory, a line after the other, kWidth values each. Chunks of 8 values are permuted within a line
// so that the same chunk of eight successive lines lies in 32 different banks.
template <int kWidth>
struct SharedLines {
  static_assert(kWidth % 64 == 0);
  static constexpr int kChunk = 8;
  static constexpr int kChunks = kWidth / kChunk;
  bfloat16* begin;  // at a multiple of 16 bytes

  __device__ bfloat16* chunk(int line, int number) const {
    return begin + line * kWidth + (number ^ (line % 8)) * kChunk;
  }
  // Returns value f of a line.
  __device__ bfloat16& at(int line, int f) const { return chunk(line, f / kChunk)[f % kChunk]; }

  // Loads lines first_line + 0..15 and values first + 0..15 as rows and columns of a left matrix.
  __device__ LeftFragment left(int first_line, int first) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    LeftFragment to;
    load_matrices<false>(to.x, chunk(first_line + lane % 16, first / kChunk + lane / 16));
    return to;
  }
  // Loads the same transposed: lines are the columns of the left matrix, values its rows.
  __device__ LeftFragment left_transposed(int first_line, int first) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    LeftFragment to;
    load_matrices<true>(to.x, chunk(first_line + lane / 16 * 8 + lane % 8, first / kChunk + lane / 8 % 2));
    return to;
  }
  // Loads two right matrices: lines first_line + 0..7 and 8..15 are columns, values first + 0..15 rows.
  __device__ void right(RightFragment (&to)[2], int first_line, int first) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    uint32_t x[4];
    load_matrices<false>(x, chunk(first_line + lane / 16 * 8 + lane % 8, first / kChunk + lane / 8 % 2));
    to[0] = {{x[0], x[1]}};
    to[1] = {{x[2], x[3]}};
  }
  // Loads two right matrices: lines first_line + 0..15 are rows, values first + 0..7 and 8..15 columns.
  __device__ void right_transposed(RightFragment (&to)[2], int first_line, int first) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    uint32_t x[4];
    load_matrices<true>(x, chunk(first_line + lane % 16, first / kChunk + lane / 16));
    to[0] = {{x[0], x[1]}};
    to[1] = {{x[2], x[3]}};
  }
};

// True when lines of `size` values of all tensors are whole chunks that copy_later may copy.
inline bool in_chunks(int64_t size, std::initializer_list<const Tensor*> tensors) {
  constexpr int64_t kChunk = SharedLines<64>::kChunk;
  constexpr uintptr_t kBytes = kChunk * sizeof(bfloat16);
  if (size % kChunk != 0) return false;
  for (const Tensor* tensor : tensors) {
    if (tensor->defined() && reinterpret_cast<uintptr_t>(tensor->raw()) % kBytes != 0) return false;
  }
  return true;
}

}  // namespace quire::cuda
