#include "tests/support/nccl_stand_in/operation.h"

#include <algorithm>
#include <cstring>

namespace quire::nccl_stand_in {

namespace {

template <typename T>
void sum(Room& room, T* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T total{0};
    for (int rank = 0; rank < room.size(); ++rank) total += reinterpret_cast<const T*>(room.values(rank))[i];
    to[i] = total;
  }
}

bool gives(const Call& call, const Room& room) {
  return call.kind != Kind::broadcast || call.root == room.rank();
}

bool takes(const Call& call, const Room& room) {
  if (call.kind == Kind::all_reduce) return true;
  return (call.kind == Kind::reduce) == (call.root == room.rank());
}

void take(const Call& call, Room& room, void* to, size_t bytes) {
  if (call.kind == Kind::broadcast) {
    std::memcpy(to, room.values(call.root), bytes);
  } else if (call.type == ncclFloat64) {
    sum(room, static_cast<double*>(to), bytes / sizeof(double));
  } else {
    sum(room, static_cast<float*>(to), bytes / sizeof(float));
  }
}

// Returns a number that differs when ranks do not make the same calls.
uint64_t mark_of(const Call& call, size_t calls) {
  uint64_t mark = calls;
  for (const uint64_t word : {static_cast<uint64_t>(call.kind), uint64_t{call.count}, static_cast<uint64_t>(call.type),
                              static_cast<uint64_t>(call.root)}) {
    mark = mark * 1000003 + word;
  }
  return mark;
}

}  // namespace

size_t size_of(ncclDataType_t type) {
  return type == ncclFloat64 ? sizeof(double) : sizeof(float);
}

ncclResult_t run(const std::vector<Call>& calls, Room& room, const Stop& stop) {
  for (const Call& call : calls) {
    const uint64_t mark = mark_of(call, calls.size());
    room.mark(room.rank()) = mark;
    if (!room.meet(stop)) return ncclSuccess;
    for (int rank = 0; rank < room.size(); ++rank) {
      if (room.mark(rank) != mark) return ncclInvalidUsage;
    }
    if (!room.meet(stop)) return ncclSuccess;
    const size_t bytes = call.count * size_of(call.type);
    for (size_t at = 0; at < bytes; at += kChunk) {
      const size_t part = std::min(kChunk, bytes - at);
      if (gives(call, room)) std::memcpy(room.values(room.rank()), static_cast<const char*>(call.send) + at, part);
      if (!room.meet(stop)) return ncclSuccess;
      if (takes(call, room)) take(call, room, static_cast<char*>(call.receive) + at, part);
      if (!room.meet(stop)) return ncclSuccess;
    }
  }
  return ncclSuccess;
}

}  // namespace quire::nccl_stand_in
