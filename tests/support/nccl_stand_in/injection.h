// Faults to inject, from the environment: QUIRE_NCCL_STAND_IN is a list of WHAT[@RANK[:OPERATION]][=VALUE], separated
// by commas. Without a rank a fault applies to all ranks, without an operation (1 is the first) to every operation.
//   version=22602          ncclGetVersion() says so
//   init_hangs@1           the rank never joins
//   hang@1:3               the rank never does its third operation
//   error@1:3=6            instead of doing it there is an error, of this ncclResult_t
//   slow=20                an operation takes so many milliseconds more
//   posting=20             so long after the end of a group the stream gets it
//   abort_hangs@0          ncclCommAbort() never returns
//   finalize_hangs@0       ncclCommFinalize() never comes to an end
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quire::nccl_stand_in {

// Returns the value of `what`; 0 when it has none, nullopt when the list does not contain it.
std::optional<int64_t> injected(const std::string& what, int rank = -1, int64_t operation = -1);

}  // namespace quire::nccl_stand_in
