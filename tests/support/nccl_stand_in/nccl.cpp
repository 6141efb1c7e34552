// NCCL's functions, as far as quire calls them, for ranks that are threads or processes of one machine. Stricter than
// NCCL where a mistake would show only now and then: every call on a communicator that is busy or gone is one.
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "tests/support/nccl_stand_in/communicator.h"
#include "tests/support/nccl_stand_in/injection.h"

using quire::nccl_stand_in::Call;
using quire::nccl_stand_in::Communicator;
using quire::nccl_stand_in::injected;
using quire::nccl_stand_in::Kind;

struct ncclComm {
  std::shared_ptr<Communicator> communicator;
  int rank;
  int size;
};

namespace {

std::atomic<const char*> last_error = "";

struct All {
  std::mutex mutex;
  std::map<ncclComm_t, std::unique_ptr<ncclComm>> alive;
};
All& all() {
  static All& one = *new All;  // threads that hang use it after main
  return one;
}

// The calls of this thread since ncclGroupStart().
struct Group {
  bool open = false;
  ncclResult_t result = ncclSuccess;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Call> calls;
};
thread_local Group group;

ncclResult_t refuse(ncclResult_t result, const char* why) {
  last_error = why;
  group.result = result;
  return result;
}

ncclComm& alive(ncclComm_t comm) {
  const std::lock_guard lock(all().mutex);
  const auto found = all().alive.find(comm);
  if (found != all().alive.end()) return *found->second;
  std::fprintf(stderr, "nccl_stand_in: a communicator was used that is gone or never was\n");
  std::abort();
}

void forget(ncclComm_t comm) {
  const std::lock_guard lock(all().mutex);
  all().alive.erase(comm);
}

ncclResult_t add(const Call& call, ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  if (!group.open) return refuse(ncclInvalidUsage, "a call outside of a group");
  if (operation != ncclSum || (call.type != ncclFloat32 && call.type != ncclFloat64)) {
    return refuse(ncclInvalidArgument, "only sums of float and double");
  }
  if (alive(comm).communicator->state() == ncclInProgress) {
    return refuse(ncclInvalidArgument, "a call before the one before it has succeeded");
  }
  if (!group.calls.empty() && (group.comm != comm || group.stream != stream)) {
    return refuse(ncclInvalidUsage, "two communicators or streams in a group");
  }
  group.comm = comm;
  group.stream = stream;
  group.calls.push_back(call);
  return ncclSuccess;
}

const char* at(const void* base, size_t count, ncclDataType_t type, int rank) {
  return static_cast<const char*>(base) + count * quire::nccl_stand_in::size_of(type) * static_cast<size_t>(rank);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = static_cast<int>(injected("version").value_or(NCCL_VERSION_CODE));
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> number = 0;
  std::snprintf(id->internal, sizeof(id->internal), "/quire_nccl_stand_in_%d_%d", ::getpid(), ++number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0) {
    return refuse(ncclInvalidArgument, "the configuration is not for non-blocking calls");
  }
  if (rank < 0 || rank >= size || size > quire::nccl_stand_in::kMaxRanks) {
    return refuse(ncclInvalidArgument, "no such rank");
  }
  auto made = std::make_unique<ncclComm>(ncclComm{std::make_shared<Communicator>(id.internal, rank, size), rank, size});
  made->communicator->join();
  *comm = made.get();
  const std::lock_guard lock(all().mutex);
  all().alive.emplace(*comm, std::move(made));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = alive(comm).communicator->state();
  if (*state != ncclSuccess && *state != ncclInProgress) last_error = "as was asked for";
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const ncclResult_t state = alive(comm).communicator->state();
  if (state != ncclSuccess) return refuse(ncclInvalidArgument, "finalize before the call before it has succeeded");
  alive(comm).communicator->finalize();
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  alive(comm).communicator->destroy();
  forget(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  alive(comm).communicator->abort();
  forget(comm);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kNames[] = {"no error",         "CUDA error",    "system error", "internal error",
                                    "invalid argument", "invalid usage", "remote error", "in progress"};
  return kNames[result];
}

const char* ncclGetLastError(ncclComm_t) {
  return last_error;
}

ncclResult_t ncclGroupStart() {
  if (group.open) return refuse(ncclInvalidUsage, "a group in a group");
  group.open = true;
  group.result = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (!group.open) return refuse(ncclInvalidUsage, "no group to end");
  Group ended = std::exchange(group, Group{});
  if (ended.result != ncclSuccess || ended.calls.empty()) return ended.result;
  alive(ended.comm).communicator->post(std::move(ended.calls), ended.stream);
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::all_reduce, send, receive, count, type, 0}, operation, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::reduce, send, receive, count, type, root}, operation, comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add({Kind::broadcast, send, receive, count, type, root}, ncclSum, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = ncclSuccess;
  for (int rank = 0; rank < alive(comm).size && result == ncclSuccess; ++rank) {
    result = add({Kind::reduce, at(send, count, type, rank), receive, count, type, rank}, operation, comm, stream);
  }
  return result;
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  ncclResult_t result = ncclSuccess;
  for (int rank = 0; rank < alive(comm).size && result == ncclSuccess; ++rank) {
    void* const to = const_cast<char*>(at(receive, count, type, rank));
    result = add({Kind::broadcast, send, to, count, type, rank}, ncclSum, comm, stream);
  }
  return result;
}

}  // extern "C"
