// Products by warpgroups: four warps multiply a left matrix of 64 rows with a right matrix of 64 or 128 columns, both
// in bf16, and add to sums in f32, by the instruction wgmma.mma_async, which reads operands from shared memory while
// the threads go on (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). It exists on Hopper alone, and only
// in code that is compiled for that very chip (sm_90a).
//
// A warp has 16 of the rows, warp w of the group rows 16 w and on, and a lane holds what it holds of mma.m16n8k16
// (mma.h): SumFragment n is columns 8 n and on, and a left matrix in registers is a LeftFragment.
//
// In the order in which they are called: begin_products, multiply_later once or more, end_products, await_products.
// From the first to the last of these nobody touches the sums, left matrices in registers, or shared memory that is
// read.
#pragma once

#include <cstdlib>

#include "kernels/cuda/mma.h"
#include "kernels/cuda/own_code.h"

namespace quire::cuda {

inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupThreads = kGroupWarps * kWarp;
inline constexpr int kGroupRows = kGroupWarps * kMmaRows;

// Whether this pass of the compiler knows the instructions; kernels are empty where it does not, and never launched.
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWarpgroups = true;
#else
inline constexpr bool kHasWarpgroups = false;
#endif

// Ends copies of this thread (copy_later) and shows them, and what it stored in shared memory, to the products of
// others behind the next barrier. Products read shared memory through another path than loads and stores do.
__device__ inline void publish_copies() {
  await_copies();
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  shim::publish_copies();
#endif
}

// Orders what the threads did to registers of sums and left matrices before the products that follow.
__device__ inline void begin_products() {
#ifdef __CUDACC__
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  shim::begin_products();
#endif
}
// The products since the last call are a batch.
__device__ inline void end_products() {
#ifdef __CUDACC__
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  shim::end_products();
#endif
}

// The compiler must neither move what is done with sums to before a wait, nor give registers that products read to
// something else until then.
template <int kColumns>
__device__ inline void hold([[maybe_unused]] SumFragment (&sums)[kColumns]) {
#ifdef __CUDACC__
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n].x[i])::"memory");
  }
#endif
}
template <int kSteps>
__device__ inline void hold([[maybe_unused]] LeftFragment (&left)[kSteps]) {
#ifdef __CUDACC__
#pragma unroll
  for (int n = 0; n < kSteps; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(left[n].x[i])::"memory");
  }
#endif
}
// Ends the kernel with an error.
__device__ inline void stop_kernel() {
#ifdef __CUDACC__
  asm volatile("trap;");
#else
  std::abort();
#endif
}
// Waits until at most kLeft batches, the last ones, are under way. `registers`: sums and left matrices of the batches
// that have ended.
template <int kLeft, typename... Registers>
__device__ inline void await_products(Registers&... registers) {
#ifdef __CUDACC__
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
#else
  shim::await_products(kLeft, __FILE__, __LINE__);
#endif
  (hold(registers), ...);
}

// A matrix in shared memory, as products get it (PTX ISA, "Matrix Descriptor Format"): lines of 128 bytes whose pieces
// of 16 bytes are permuted within eight lines ("128-Byte swizzling").
using SharedOperand = uint64_t;

// kLines lines of kWidth values, in panels of 64 values: a panel is one line of 128 bytes after the other.
template <int kWidth, int kLines>
struct SharedPanels {
  static_assert(kWidth % 64 == 0 && kLines % 8 == 0);
  static constexpr int kChunk = 8;
  static constexpr int kChunks = kWidth / kChunk;
  static constexpr int kPanel = 64;                // values
  static constexpr int kValues = kWidth * kLines;  // of the matrix
  static constexpr int kLineBytes = kPanel * static_cast<int>(sizeof(bfloat16));
  static constexpr int kEight = 8 * kLineBytes;  // from eight lines to the next eight
  static constexpr int kAlignment = kEight;      // of begin, in bytes
  bfloat16* begin;

  __device__ bfloat16* chunk(int line, int number) const {
    return begin + number / 8 * (kLines * kPanel) + line * kPanel + ((number ^ line) % 8) * kChunk;
  }
  // Lines first_line.. are rows of a left or columns of a right matrix, which is summed over 16 values from `first` on.
  __device__ SharedOperand along(int first_line, int first) const {
    return operand(first / kPanel * (kLines * kPanel) + first_line * kPanel + first % kPanel, 1);
  }
  // Values are the columns of a right matrix, which is summed over 16 lines from first_line on.
  __device__ SharedOperand across(int first_line) const {
    return operand(first_line * kPanel, kLines * kLineBytes / 16);
  }

 private:
  // `apart`: 16 bytes between panels, where values are columns.
  __device__ SharedOperand operand(int offset, uint64_t apart) const {
#ifdef __CUDACC__
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(begin + offset));
#else
    const uint32_t address = shim::shared_address(begin + offset);
#endif
    constexpr uint64_t kSwizzled = 1;  // by 128 bytes
    return (address & 0x3ffffU) >> 4 | apart << 16 | uint64_t{kEight / 16} << 32 | kSwizzled << 62;
  }
};

// The first address in dynamic shared memory that SharedPanels may begin at; blocks ask for kAlignment bytes more.
__device__ inline bfloat16* first_panel() {
  auto* const memory = dynamic_shared<unsigned char>();
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
#else
  const uint32_t address = shim::shared_address(memory);
#endif
  constexpr uint32_t kAlignment = SharedPanels<64, 8>::kAlignment;
  return reinterpret_cast<bfloat16*>(memory + (kAlignment - address % kAlignment) % kAlignment);
}

#ifdef __CUDACC__
#define QUIRE_SUMS(n) "+f"(sums[n].x[0]), "+f"(sums[n].x[1]), "+f"(sums[n].x[2]), "+f"(sums[n].x[3])
#define QUIRE_EIGHT_SUMS(n)                                                                                     \
  QUIRE_SUMS(n), QUIRE_SUMS(n + 1), QUIRE_SUMS(n + 2), QUIRE_SUMS(n + 3), QUIRE_SUMS(n + 4), QUIRE_SUMS(n + 5), \
      QUIRE_SUMS(n + 6), QUIRE_SUMS(n + 7)
#define QUIRE_REGISTERS_32                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUIRE_REGISTERS_64                                                                  \
  QUIRE_REGISTERS_32                                                                        \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#endif

// sums = or, when `add`, += left * right. Turned: right is SharedPanels::across, otherwise along.
template <bool kTurned = false, int kColumns>
__device__ inline void multiply_later(SumFragment (&sums)[kColumns], SharedOperand left, SharedOperand right,
                                      bool add) {
  static_assert(kColumns == 8 || kColumns == 16);
#ifdef __CUDACC__
  if constexpr (kColumns == 8) {
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" QUIRE_REGISTERS_32 "}, %32, %33, add, 1, 1, 0, %35;}"
        : QUIRE_EIGHT_SUMS(0)
        : "l"(left), "l"(right), "r"(static_cast<int>(add)), "n"(kTurned ? 1 : 0));
  } else {
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" QUIRE_REGISTERS_64 "}, %64, %65, add, 1, 1, 0, %67;}"
        : QUIRE_EIGHT_SUMS(0), QUIRE_EIGHT_SUMS(8)
        : "l"(left), "l"(right), "r"(static_cast<int>(add)), "n"(kTurned ? 1 : 0));
  }
#else
  shim::multiply_later(sums[0].x, kColumns, nullptr, left, right, kTurned, add, __FILE__, __LINE__);
#endif
}
// With the left matrix in registers.
template <bool kTurned = false, int kColumns>
__device__ inline void multiply_later(SumFragment (&sums)[kColumns], const LeftFragment& left, SharedOperand right,
                                      bool add) {
  static_assert(kColumns == 8 || kColumns == 16);
#ifdef __CUDACC__
  if constexpr (kColumns == 8) {
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" QUIRE_REGISTERS_32
        "}, {%32, %33, %34, %35}, %36, add, 1, 1, %38;}"
        : QUIRE_EIGHT_SUMS(0)
        : "r"(left.x[0]), "r"(left.x[1]), "r"(left.x[2]), "r"(left.x[3]), "l"(right), "r"(static_cast<int>(add)),
          "n"(kTurned ? 1 : 0));
  } else {
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" QUIRE_REGISTERS_64
        "}, {%64, %65, %66, %67}, %68, add, 1, 1, %70;}"
        : QUIRE_EIGHT_SUMS(0), QUIRE_EIGHT_SUMS(8)
        : "r"(left.x[0]), "r"(left.x[1]), "r"(left.x[2]), "r"(left.x[3]), "l"(right), "r"(static_cast<int>(add)),
          "n"(kTurned ? 1 : 0));
  }
#else
  shim::multiply_later(sums[0].x, kColumns, left.x, 0, right, kTurned, add, __FILE__, __LINE__);
#endif
}

#ifdef __CUDACC__
#undef QUIRE_SUMS
#undef QUIRE_EIGHT_SUMS
#undef QUIRE_REGISTERS_32
#undef QUIRE_REGISTERS_64
#endif

}  // namespace quire::cuda
