// Emulates products of warpgroups, lane by lane.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/bfloat16.h"
#include "tests/support/cuda_shim/cuda_runtime.h"

namespace quire::shim {

namespace {

constexpr int kDepth = 16;                      // summed over
std::atomic<int64_t> g_warpgroup_products = 0;  // counted without order, as in mma.cpp

float number(uint32_t bits) {
  bfloat16 value;
  value.bits = static_cast<uint16_t>(bits);
  return static_cast<float>(value);
}

// A descriptor of a matrix in shared memory (PTX ISA, "Matrix Descriptor Format": bits 0 to 13 the address, 16 to 29
// the leading dimension's offset, 32 to 45 the stride dimension's offset, each without its four lowest bits, 49 to 51
// the base offset, 62 and 63 the swizzling, 1 for 128 bytes), and its values.
struct Matrix {
  uint32_t address, leading, stride;
  const char* file;
  int line;

  Matrix(uint64_t bits, const char* file_, int line_)
      : address(field(bits, 0)), leading(field(bits, 16)), stride(field(bits, 32)), file(file_), line(line_) {
    const bool known = bits >> 62 == 1 && (bits >> 49 & 7) == 0;
    if (known) return;
    std::fprintf(stderr, "cuda_shim: a matrix without 128-byte swizzling, or with a base offset: %s:%d\n", file, line);
    std::abort();
  }
  static uint32_t field(uint64_t bits, int first) { return static_cast<uint32_t>(bits >> first & 0x3fff) << 4; }

  // Swizzling: bits 4 to 6 of an address are xored with bits 7 to 9.
  float at(uint32_t offset) const {
    const uint32_t where = address + offset;
    const unsigned char* const bytes = shared_bytes(where ^ (where >> 7 & 7) << 4, 2, file, line);
    return number(static_cast<uint32_t>(bytes[0] | bytes[1] << 8));
  }
  // The summed axis lies in a line of 128 bytes; eight lines follow each other, and the next eight are `stride`
  // further.
  float along(int of_line, int depth) const {
    const auto n = static_cast<uint32_t>(of_line);
    return at(n / 8 * stride + n % 8 * 128 + static_cast<uint32_t>(depth) * 2);
  }
  // 64 columns lie in a line, `leading` to the next 64; what is summed over is eight lines, `stride` to the next eight.
  float across(int column, int depth) const {
    const auto n = static_cast<uint32_t>(column);
    const auto k = static_cast<uint32_t>(depth);
    return at(n / 64 * leading + n % 64 * 2 + k / 8 * stride + k % 8 * 128);
  }
};

using Row = std::array<float, kDepth>;

}  // namespace

// A lane of warp w of a group holds, of the sums, rows 16 w + lane / 4 and 8 more, and columns 8 n + lane % 4 * 2 and
// the next one (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts", m64nNk16: D); of a left matrix in
// registers what it holds of mma.m16n8k16.
void multiply_later(float* sums, int columns, const uint32_t* left, uint64_t left_operand, uint64_t right_operand,
                    bool turned, bool add, const char* file, int line) {
  begin_product(file, line);
  const std::array<uint32_t, 4> mine =
      left == nullptr ? std::array<uint32_t, 4>{} : std::array<uint32_t, 4>{left[0], left[1], left[2], left[3]};
  const unsigned char* const all = exchange(mine.data(), sizeof(mine), ~0U, file, line);
  const int group = lane() / 4;
  std::array<Row, 2> rows{};
  for (int k = 0; k < kDepth && left != nullptr; ++k) {
    const auto of_row = from_lane<std::array<uint32_t, 4>>(all, group * 4 + k % 8 / 2);
    for (size_t n = 0; n < 2; ++n) {
      rows[n][static_cast<size_t>(k)] = number(of_row[static_cast<size_t>(k / 8 * 2) + n] >> (k % 2 * 16) & 0xffff);
    }
  }
  if (lane() == 0) count_products(columns);
  if (lane() == 0) count_warpgroup_products(columns);
  const int first_row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + group;
  const int first_column = lane() % 4 * 2;
  const bool in_registers = left != nullptr;
  do_later([=, rows = rows]() mutable {
    const Matrix right(right_operand, file, line);
    for (int k = 0; k < kDepth && !in_registers; ++k) {
      const Matrix of_rows(left_operand, file, line);
      for (int n = 0; n < 2; ++n) {
        rows[static_cast<size_t>(n)][static_cast<size_t>(k)] = of_rows.along(first_row + 8 * n, k);
      }
    }
    for (int n = 0; n < columns; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + first_column + i % 2;
        float sum = add ? sums[4 * n + i] : 0;
        for (int k = 0; k < kDepth; ++k) {
          const float value = turned ? right.across(column, k) : right.along(column, k);
          sum += rows[static_cast<size_t>(i / 2)][static_cast<size_t>(k)] * value;
        }
        sums[4 * n + i] = sum;
      }
    }
  });
}

void count_warpgroup_products(int64_t fragments) {
  g_warpgroup_products.fetch_add(fragments, std::memory_order_relaxed);
}

int64_t warpgroup_products() {
  return g_warpgroup_products;
}

}  // namespace quire::shim
