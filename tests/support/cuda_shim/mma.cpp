// Emulates tensor cores, lane by lane.
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "tests/support/cuda_shim/cuda_runtime.h"

namespace quire::shim {

namespace {

// Threads of a block count without order, and must not get one by counting.
std::atomic<int64_t> g_bank_conflicts = 0;
std::atomic<int64_t> g_tensor_products = 0;

void count(std::atomic<int64_t>& counter, int64_t more) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

struct Operands {
  uint32_t left[4];
  uint32_t right[2];
};

}  // namespace

// Value i of a lane, i = 0..7 in four registers of the left matrix, 0..3 in two of the right one, 0..3 of the sums
// (PTX ISA, matrix fragments for mma.m16n8k16 with
// .bf16, with groupID = lane >> 2 and threadID_in_group = lane % 4):
//   left:  row = groupID + (2 <= i < 4 or i >= 6 ? 8 : 0), column = threadID_in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)
//   right: row = threadID_in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), column = groupID
//   sums:  row = groupID + (i >= 2 ? 8 : 0), column = threadID_in_group * 2 + (i & 1)
void multiply_add(float (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2], const char* file, int line) {
  const Operands mine{{left[0], left[1], left[2], left[3]}, {right[0], right[1]}};
  static_assert(sizeof(mine) == kLaneBytes);
  const auto* const all = reinterpret_cast<const Operands*>(exchange(&mine, sizeof(mine), ~0U, file, line));
  if (lane() == 0) count(g_tensor_products, 1);
  const int group = lane() / 4;
  const int pair = lane() % 4 * 2;
  float rows[2][16];
  float columns[2][16];
  for (int n = 0; n < 2; ++n) {
    for (int k = 0; k < 16; k += 2) {
      const int part = k / 8;
      const int from = k % 8 / 2;
      const uint32_t of_row = all[group * 4 + from].left[2 * part + n];
      const uint32_t of_column = all[(pair + n) * 4 + from].right[part];
      rows[n][k] = std::bit_cast<float>(of_row << 16);
      rows[n][k + 1] = std::bit_cast<float>(of_row & 0xffff0000U);
      columns[n][k] = std::bit_cast<float>(of_column << 16);
      columns[n][k + 1] = std::bit_cast<float>(of_column & 0xffff0000U);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) sums[i] += rows[i / 2][k] * columns[i % 2][k];
  }
}

void load_matrices(uint32_t (&to)[4], const void* address, bool transposed, const char* file, int line) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) {
    std::fprintf(stderr, "cuda_shim: ldmatrix at an address that is no multiple of 16: %s:%d\n", file, line);
    std::abort();
  }
  const unsigned char* const all = exchange(&address, sizeof(address), ~0U, file, line);
  for (int matrix = 0; matrix < 4; ++matrix) {
    to[matrix] = 0;
    for (int i = 0; i < 2; ++i) {
      const int row = transposed ? lane() % 4 * 2 + i : lane() / 4;
      const int column = transposed ? lane() / 4 : lane() % 4 * 2 + i;
      const auto* const line_of_row = from_lane<const uint16_t*>(all, 8 * matrix + row);
      to[matrix] |= static_cast<uint32_t>(line_of_row[column]) << (16 * i);
    }
    if (lane() != 0) continue;
    std::set<uintptr_t> banks;
    for (int row = 0; row < 8; ++row) {
      banks.insert(reinterpret_cast<uintptr_t>(from_lane<const uint16_t*>(all, 8 * matrix + row)) / 16 % 8);
    }
    if (banks.size() < 8) count(g_bank_conflicts, 1);
  }
}

void count_products(int64_t fragments) {
  count(g_tensor_products, fragments);
}

void count_bank_conflicts(int64_t matrices) {
  count(g_bank_conflicts, matrices);
}

int64_t tensor_products() {
  return g_tensor_products;
}

int64_t bank_conflicts() {
  return g_bank_conflicts;
}

}  // namespace quire::shim
