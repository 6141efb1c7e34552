// Tensor cores: fragments of mma.m16n8k16 as the PTX ISA lays them out.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tests/support/cuda_shim/products.h"
#include "tests/support/ptx/machine.h"

namespace quire::ptx {

// operands: the address, then four registers.
void load_matrices(Warp& warp, const Instruction& i, uint32_t) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t values[8][8];
    uint32_t banks = 0;
    for (int row = 0; row < 8; ++row) {
      const int lane = 8 * matrix + row;
      uint64_t at = 0;
      std::memcpy(&at, warp.registers.data() + i.operands[0] + i.address_bytes * lane, i.address_bytes);
      at = static_cast<uint32_t>(at + static_cast<uint64_t>(i.number));
      if (at % 16 != 0) give_up(warp, "ldmatrix at an address that is no multiple of 16");
      const unsigned char* const from = shared(warp, static_cast<uint32_t>(at), 16);
      note_read(warp, lane, from, 16);
      std::memcpy(values[row], from, 16);
      banks |= 1U << (at / 16 % 8);
    }
    shim::count_bank_conflicts(banks == 0xff ? 0 : 1);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int group = lane / 4;
      const int pair = lane % 4 * 2;
      const uint32_t first = i.transposed ? values[pair][group] : values[group][pair];
      const uint32_t second = i.transposed ? values[pair + 1][group] : values[group][pair + 1];
      lanes_of<uint32_t>(warp, i.operands[static_cast<size_t>(1 + matrix)])[lane] = first | second << 16;
    }
  }
}

namespace {

float lower(uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
float upper(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000U);
}

// Row `group` (n = 0) or group + 8 (n = 1) of a left matrix in four registers of every lane.
void gather_row(const uint32_t* const (&registers)[4], int group, int n, float (&row)[16]) {
  for (int k = 0; k < 16; k += 2) {
    const uint32_t pair = registers[k / 8 * 2 + n][group * 4 + k % 8 / 2];
    row[k] = lower(pair);
    row[k + 1] = upper(pair);
  }
}

}  // namespace

// operands: four of the sums that come out, four of the left matrix, two of the right one, four of the sums.
void multiply_add(Warp& warp, const Instruction& i, uint32_t) {
  shim::count_products(1);
  const uint32_t* const left[4] = {lanes_of<uint32_t>(warp, i.operands[4]), lanes_of<uint32_t>(warp, i.operands[5]),
                                   lanes_of<uint32_t>(warp, i.operands[6]), lanes_of<uint32_t>(warp, i.operands[7])};
  float rows[16][16];
  float columns[8][16];
  for (int group = 0; group < 8; ++group) {
    gather_row(left, group, 0, rows[group]);
    gather_row(left, group, 1, rows[group + 8]);
    for (int k = 0; k < 16; k += 2) {
      const uint32_t pair = lanes_of<uint32_t>(warp, i.operands[static_cast<size_t>(8 + k / 8)])[group * 4 + k % 8 / 2];
      columns[group][k] = lower(pair);
      columns[group][k + 1] = upper(pair);
    }
  }
  float sums[4][kLanes];
  for (size_t n = 0; n < 4; ++n) std::copy_n(lanes_of<float>(warp, i.operands[10 + n]), kLanes, sums[n]);
  for (int n = 0; n < 4; ++n) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float* const row = rows[lane / 4 + n / 2 * 8];
      const float* const column = columns[lane % 4 * 2 + n % 2];
      for (int k = 0; k < 16; ++k) sums[n][lane] += row[k] * column[k];
    }
  }
  for (size_t n = 0; n < 4; ++n) std::copy_n(sums[n], kLanes, lanes_of<float>(warp, i.operands[n]));
}

}  // namespace quire::ptx
