// Tensor cores: fragments of mma.m16n8k16 and of products by warpgroups as the PTX ISA lays them out.
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
      const uint32_t first = i.turned ? values[pair][group] : values[group][pair];
      const uint32_t second = i.turned ? values[pair + 1][group] : values[group][pair + 1];
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

namespace {

// A descriptor of a matrix in shared memory (PTX ISA, "Matrix Descriptor Format").
struct Matrix {
  Warp& warp;
  uint32_t address, leading, stride;

  Matrix(Warp& warp_, uint64_t bits)
      : warp(warp_), address(field(bits, 0)), leading(field(bits, 16)), stride(field(bits, 32)) {
    const bool known = bits >> 62 == 1 && (bits >> 49 & 7) == 0;
    if (!known) give_up(warp, "a matrix without 128-byte swizzling, or with a base offset");
  }
  static uint32_t field(uint64_t bits, int first) { return static_cast<uint32_t>(bits >> first & 0x3fff) << 4; }
  // Bits 4 to 6 of an address are xored with bits 7 to 9.
  float at(uint32_t offset) const {
    uint32_t where = address + offset;
    where ^= (where >> 7 & 7) << 4;
    const unsigned char* const from = shared(warp, where, 2);
    note_product_read(warp, from);
    uint16_t bits = 0;
    std::memcpy(&bits, from, 2);
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  float along(uint32_t line, uint32_t depth) const { return at(line / 8 * stride + line % 8 * 128 + depth * 2); }
  float across(uint32_t column, uint32_t depth) const {
    return at(column / 64 * leading + column % 64 * 2 + depth / 8 * stride + depth % 8 * 128);
  }
};

// Computes a product for these lanes, with the present operands in shared memory.
void multiply_now(Warp& warp, const PendingProduct& product) {
  const Instruction& i = *product.instruction;
  const int columns = i.bytes * 8;
  float rows[16][16];
  if (i.count == 4) {
    const uint32_t* const left[4] = {product.left[0].data(), product.left[1].data(), product.left[2].data(),
                                     product.left[3].data()};
    for (int group = 0; group < 8; ++group) {
      gather_row(left, group, 0, rows[group]);
      gather_row(left, group, 1, rows[group + 8]);
    }
  } else {
    const Matrix left(warp, product.left_operand);
    for (uint32_t row = 0; row < 16; ++row) {
      for (uint32_t k = 0; k < 16; ++k) rows[row][k] = left.along(static_cast<uint32_t>(warp.number % 4 * 16) + row, k);
    }
  }
  const Matrix right(warp, product.right_operand);
  for (int column = 0; column < columns; ++column) {
    float of_column[16];
    const auto c = static_cast<uint32_t>(column);
    for (uint32_t k = 0; k < 16; ++k) of_column[k] = i.turned ? right.across(c, k) : right.along(c, k);
    for (int row = 0; row < 16; ++row) {
      const int lane = row % 8 * 4 + column % 8 / 2;
      if ((product.lanes >> lane & 1) == 0) continue;
      const auto place = static_cast<size_t>(column / 8 * 4 + row / 8 * 2 + column % 2);
      float& to = lanes_of<float>(warp, i.operands[place])[lane];
      float sum = product.adds ? to : 0;
      for (int k = 0; k < 16; ++k) sum += rows[row][k] * of_column[k];
      to = sum;
    }
  }
}

constexpr uint32_t kAtOnce = 0xaaaaaaaaU;  // lanes whose sums are made at once; the others' as late as they may be

}  // namespace

void begin_products(Warp& warp, const Instruction&, uint32_t) {
  warp.begun = true;
}

void multiply_later(Warp& warp, const Instruction& i, uint32_t) {
  if (!warp.begun) give_up(warp, "a product before wgmma.fence");
  shim::count_products(i.bytes);
  shim::count_warpgroup_products(i.bytes);
  const size_t first = size_t{i.bytes} * 4;
  PendingProduct product{&i, kAtOnce, warp.batches, {}, 0, 0, false};
  if (i.count == 4) {
    for (size_t n = 0; n < 4; ++n) {
      std::copy_n(lanes_of<uint32_t>(warp, i.operands[first + n]), kLanes, product.left.emplace_back().data());
    }
  } else {
    product.left_operand = *lanes_of<uint64_t>(warp, i.operands[first]);
  }
  product.right_operand = *lanes_of<uint64_t>(warp, i.operands[first + i.count]);
  const uint32_t adds = predicate(warp, i.operands[first + i.count + 1]);
  if (adds != 0 && adds != kAll) give_up(warp, "lanes differ in whether a product is added");
  product.adds = adds != 0;
  multiply_now(warp, product);
  product.lanes = ~kAtOnce;
  warp.products.push_back(std::move(product));
}

void end_products(Warp& warp, const Instruction&, uint32_t) {
  ++warp.batches;
}

void await_products(Warp& warp, const Instruction& i, uint32_t) {
  warp.begun = false;
  std::vector<PendingProduct> open;
  for (PendingProduct& product : std::exchange(warp.products, {})) {
    if (product.batch + i.number >= warp.batches) {
      open.push_back(std::move(product));
    } else {
      multiply_now(warp, product);
    }
  }
  warp.products = std::move(open);
}

}  // namespace quire::ptx
