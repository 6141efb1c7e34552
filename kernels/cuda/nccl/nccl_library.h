// Holds NCCL's functions. Its library is loaded when ranks connect, so that programs start without it.
#pragma once

#include <nccl.h>

#include <string>

namespace quire::cuda {

struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;

  std::string version;  // "2.28.9"
  std::string choices;  // "algorithm Ring, protocol Simple": NCCL_ALGO and NCCL_PROTO
};

// Chooses algorithm and protocol where the user has not, and loads the library, which stays. Error(config) says what is
// missing, or which version is refused.
NcclLibrary load_nccl(const std::string& file);

// Returns "2.28.9" for 22809.
std::string nccl_version_text(int version);
// Returns why this version is refused and what to do; empty when it is accepted.
std::string why_nccl_refused(int version);

}  // namespace quire::cuda
