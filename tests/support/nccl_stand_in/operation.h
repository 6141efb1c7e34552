// Computes what a group of calls does with the values: rank by rank, in rank order.
#pragma once

#include <nccl.h>

#include <vector>

#include "tests/support/nccl_stand_in/room.h"

namespace quire::nccl_stand_in {

enum class Kind : uint8_t { all_reduce, reduce, broadcast };

// Scattered sums and gathered parts are one call for every rank.
struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  int root;
};

size_t size_of(ncclDataType_t type);

// Returns ncclSuccess, also when it was stopped; ncclInvalidUsage when the ranks do not make the same calls.
ncclResult_t run(const std::vector<Call>& calls, Room& room, const Stop& stop);

}  // namespace quire::nccl_stand_in
