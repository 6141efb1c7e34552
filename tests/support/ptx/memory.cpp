// Loads, stores, atomic operations and copies. This source is compiled with AddressSanitizer, which watches what it
// reads and writes in the host memory that stands for global memory.
#include <bit>
#include <cstring>
#include <utility>

#include "tests/support/ptx/machine.h"

namespace quire::ptx {

namespace {

uint64_t value_at(Warp& warp, int32_t place, int bytes, int lane) {
  uint64_t value = 0;
  std::memcpy(&value, warp.registers.data() + place + bytes * lane, static_cast<size_t>(bytes));
  return value;
}

uint64_t address_of(Warp& warp, const Instruction& i, int lane) {
  return value_at(warp, i.operands[0], i.address_bytes, lane) + static_cast<uint64_t>(i.number);
}

// A lane's memory, of a size that it is aligned for.
unsigned char* memory(Warp& warp, const Instruction& i, int lane, size_t bytes) {
  uint64_t at = address_of(warp, i, lane);
  if (i.space == Space::shared) {
    at = static_cast<uint32_t>(at);
    if (at % bytes != 0) give_up(warp, "a misaligned address in shared memory");
    return shared(warp, static_cast<uint32_t>(at), bytes);
  }
  if (at % bytes != 0) give_up(warp, "a misaligned address");
  return reinterpret_cast<unsigned char*>(at);
}

template <typename Function>
void for_lanes(uint32_t lanes, Function&& function) {
  for (uint32_t left = lanes; left != 0; left &= left - 1) function(std::countr_zero(left));
}

// Shared memory that is named by the address of the host.
bool in_shared(const Block& block, const unsigned char* at) {
  return at >= block.shared.data() && at < block.shared.data() + block.shared_bytes;
}

template <size_t kBytes>
void load_elements(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const unsigned char* const from = memory(warp, i, lane, kBytes * i.count);
    if (in_shared(*warp.block, from)) note_read(warp, lane, from, kBytes * i.count);
    for (size_t n = 0; n < i.count; ++n) {
      uint64_t value = 0;
      std::memcpy(&value, from + n * kBytes, kBytes);
      if (i.is_signed) {
        constexpr int kShift = 64 - 8 * static_cast<int>(kBytes);
        value = static_cast<uint64_t>(static_cast<int64_t>(value << kShift) >> kShift);
      }
      std::memcpy(warp.registers.data() + i.operands[1 + n] + i.register_bytes * lane, &value, i.register_bytes);
    }
  });
}

template <size_t kBytes>
void store_elements(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    unsigned char* const to = memory(warp, i, lane, kBytes * i.count);
    if (in_shared(*warp.block, to)) note_write(warp, lane, to, kBytes * i.count);
    for (size_t n = 0; n < i.count; ++n) {
      std::memcpy(to + n * kBytes, warp.registers.data() + i.operands[1 + n] + i.register_bytes * lane, kBytes);
    }
  });
}

// Uses __atomic builtins: blocks of a grid run one after the other, but other grids may run at the same time.
template <typename T>
void atomic_on(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    auto* const at = reinterpret_cast<T*>(memory(warp, i, lane, sizeof(T)));
    const T value = lanes_of<T>(warp, i.operands[2])[lane];
    T before = *at;
    if (static_cast<AtomicKind>(i.variant) == AtomicKind::add) {
      *at = static_cast<T>(before + value);
    } else if (value > before) {
      *at = value;
    }
    lanes_of<T>(warp, i.operands[1])[lane] = before;
  });
}

void make(const PendingCopy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, 16);
  } else {
    std::memcpy(copy.to, copy.from, 16);
  }
}

}  // namespace

void load(Warp& warp, const Instruction& i, uint32_t lanes) {
  switch (i.bytes) {
    case 1:
      return load_elements<1>(warp, i, lanes);
    case 2:
      return load_elements<2>(warp, i, lanes);
    case 4:
      return load_elements<4>(warp, i, lanes);
    default:
      return load_elements<8>(warp, i, lanes);
  }
}

void store(Warp& warp, const Instruction& i, uint32_t lanes) {
  switch (i.bytes) {
    case 1:
      return store_elements<1>(warp, i, lanes);
    case 2:
      return store_elements<2>(warp, i, lanes);
    case 4:
      return store_elements<4>(warp, i, lanes);
    default:
      return store_elements<8>(warp, i, lanes);
  }
}

void atomic(Warp& warp, const Instruction& i, uint32_t lanes) {
  if (i.bytes == 8) return i.is_signed ? atomic_on<int64_t>(warp, i, lanes) : atomic_on<uint64_t>(warp, i, lanes);
  i.is_signed ? atomic_on<int32_t>(warp, i, lanes) : atomic_on<uint32_t>(warp, i, lanes);
}

void window_to_address(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const uint64_t at = lanes_of<uint64_t>(warp, i.operands[1])[lane];
    lanes_of<uint64_t>(warp, i.operands[0])[lane] =
        reinterpret_cast<uint64_t>(warp.block->shared.data()) + at - kSharedBegin;
  });
}

void address_to_window(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    const uint64_t at = lanes_of<uint64_t>(warp, i.operands[1])[lane];
    lanes_of<uint64_t>(warp, i.operands[0])[lane] =
        at - reinterpret_cast<uint64_t>(warp.block->shared.data()) + kSharedBegin;
  });
}

// Half of the lanes copy at once, the others as late as they may.
void copy_later(Warp& warp, const Instruction& i, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    unsigned char* const to = memory(warp, i, lane, 16);
    const uint64_t from = lanes_of<uint64_t>(warp, i.operands[1])[lane];
    const uint32_t bytes = lanes_of<uint32_t>(warp, i.operands[2])[lane];
    if (from % 16 != 0) give_up(warp, "a copy from a misaligned address");
    if (bytes != 0 && bytes != 16) give_up(warp, "a copy of a part");
    note_write(warp, lane, to, 16);
    const PendingCopy copy{lane, to, bytes == 0 ? nullptr : reinterpret_cast<const unsigned char*>(from)};
    lane % 2 == 1 ? make(copy) : warp.copies.push_back(copy);
  });
}

void await_copies(Warp& warp, const Instruction&, uint32_t lanes) {
  for (const PendingCopy& copy : std::exchange(warp.copies, {})) {
    (lanes >> copy.lane & 1) != 0 ? make(copy) : warp.copies.push_back(copy);
  }
}

}  // namespace quire::ptx
