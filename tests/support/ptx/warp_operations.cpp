// Operations of the lanes of a warp together, and those that split registers.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/support/ptx/machine.h"

namespace quire::ptx {

// Lanes beyond an end of their segment keep their own value (PTX ISA, "shfl.sync").
void shuffle(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint32_t values[kLanes];
  std::copy_n(lanes_of<uint32_t>(warp, i.operands[3]), kLanes, values);
  uint32_t* const to = lanes_of<uint32_t>(warp, i.operands[1]);
  uint32_t found = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const int b = static_cast<int>(lanes_of<uint32_t>(warp, i.operands[4])[lane] & 31);
    const uint32_t c = lanes_of<uint32_t>(warp, i.operands[5])[lane];
    const int segment = static_cast<int>(c >> 8 & 31);
    const int end = static_cast<int>(c & 31);
    const int last = (lane & segment) | (end & ~segment);
    const int first = lane & segment;
    int source = lane;
    bool inside = true;
    switch (static_cast<ShuffleKind>(i.variant)) {
      case ShuffleKind::up:
        source = lane - b;
        inside = source >= last;
        break;
      case ShuffleKind::down:
        source = lane + b;
        inside = source <= last;
        break;
      case ShuffleKind::bfly:
        source = lane ^ b;
        inside = source <= last;
        break;
      case ShuffleKind::idx:
        source = first | (b & ~segment);
        inside = source <= last;
        break;
    }
    if (!inside) source = lane;
    if ((lanes >> source & 1) == 0) give_up(warp, "a value of a lane that takes no part");
    to[lane] = values[source];
    found |= static_cast<uint32_t>(inside) << lane;
  }
  uint32_t& to_found = predicate(warp, i.operands[2]);
  to_found = (to_found & ~lanes) | (found & lanes);
}

void vote(Warp& warp, const Instruction& i, uint32_t lanes) {
  const uint32_t votes = predicate(warp, i.operands[2]) & lanes;
  const auto kind = static_cast<VoteKind>(i.variant);
  if (kind == VoteKind::ballot) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((lanes >> lane & 1) != 0) lanes_of<uint32_t>(warp, i.operands[1])[lane] = votes;
    }
    return;
  }
  const bool result = kind == VoteKind::all ? votes == lanes : votes != 0;
  uint32_t& to = predicate(warp, i.operands[1]);
  to = (to & ~lanes) | (result ? lanes : 0);
}

void sync_warp(Warp& warp, const Instruction&, uint32_t) {
  ++warp.synchronized;
}

void trap(Warp& warp, const Instruction&, uint32_t) {
  give_up(warp, "trap");
}

void split(Warp& warp, const Instruction& i, uint32_t lanes) {
  const size_t bytes = i.bytes;
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<size_t>(std::countr_zero(left));
    unsigned char whole[8];
    std::memcpy(whole, warp.registers.data() + i.operands[0] + 2 * bytes * lane, 2 * bytes);
    for (size_t n = 0; n < 2; ++n) {
      std::memcpy(warp.registers.data() + i.operands[1 + n] + bytes * lane, whole + n * bytes, bytes);
    }
  }
}

void join(Warp& warp, const Instruction& i, uint32_t lanes) {
  const size_t bytes = i.bytes;
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<size_t>(std::countr_zero(left));
    unsigned char whole[8];
    for (size_t n = 0; n < 2; ++n) {
      std::memcpy(whole + n * bytes, warp.registers.data() + i.operands[1 + n] + bytes * lane, bytes);
    }
    std::memcpy(warp.registers.data() + i.operands[0] + 2 * bytes * lane, whole, 2 * bytes);
  }
}

}  // namespace quire::ptx
