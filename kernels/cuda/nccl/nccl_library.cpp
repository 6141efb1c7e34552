#include "kernels/cuda/nccl/nccl_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "core/check.h"
#include "core/library.h"

namespace quire::cuda {

namespace {

constexpr const char* kAdvice =
    "ranks on several GPUs need NCCL 2.27.3 or newer: install NVIDIA's package libnccl2, or put the folder of "
    "libnccl.so.2 on LD_LIBRARY_PATH";

struct Refused {
  int from;  // refused from this version on
  int to;    // up to this one
  const char* why;
};

// Lists versions with which a run may hang where it should end with an error. The sources are NCCL's issues 992 and
// 1013, and PyTorch's issues 149153 and 153960 and its pull request 174338.
constexpr std::array<Refused, 4> kRefused{{
    {0, NCCL_VERSION(2, 19, 3), "a rank that fails cannot end what others wait in, because ncclCommAbort may hang"},
    {NCCL_VERSION(2, 25, 0), NCCL_VERSION(2, 25, 99), "ncclCommAbort hangs in 2.25"},
    {NCCL_VERSION(2, 26, 0), NCCL_VERSION(2, 26, 99), "non-blocking communicators of 2.26 hang now and then"},
    {NCCL_VERSION(2, 29, 0), NCCL_VERSION(2, 29, 2), "2.29.2 hangs; 2.29.3 mends it"},
}};

// Sets an environment variable unless it is set, and returns its value. NCCL_ALGO and NCCL_PROTO decide the order of
// sums; without them NCCL chooses by size and by its own measurements.
std::string pinned(const char* name, const char* value) {
  ::setenv(name, value, 0);
  return std::getenv(name);
}

template <typename Function>
void find(void* library, const std::string& file, const char* name, Function& function) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) fail(ErrorKind::config, "{} has no {}; {}", file, name, kAdvice);
  function = reinterpret_cast<Function>(found);
}

}  // namespace

std::string nccl_version_text(int version) {
  // Up to 2.8 the number had one digit less.
  if (version < 10000) return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string why_nccl_refused(int version) {
  for (const Refused& refused : kRefused) {
    if (version < refused.from || version > refused.to) continue;
    return fmt::format("NCCL {} is refused: {}; {}", nccl_version_text(version), refused.why, kAdvice);
  }
  return "";
}

NcclLibrary load_nccl(const std::string& file) {
  static std::mutex mutex;  // ranks may be threads, and share the environment
  const std::lock_guard lock(mutex);
  NcclLibrary nccl;
  nccl.choices = fmt::format("algorithm {}, protocol {}", pinned("NCCL_ALGO", "Ring"), pinned("NCCL_PROTO", "Simple"));
  std::string reason;
  void* const library = open_library(file, reason);
  if (library == nullptr) fail(ErrorKind::config, "NCCL cannot be loaded: {}; {}", reason, kAdvice);
  find(library, file, "ncclGetVersion", nccl.get_version);
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess) fail(ErrorKind::config, "{} does not tell its version", file);
  const std::string why = why_nccl_refused(version);
  if (!why.empty()) throw Error(ErrorKind::config, why);
  nccl.version = nccl_version_text(version);
  find(library, file, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, file, "ncclCommInitRankConfig", nccl.init_rank);
  find(library, file, "ncclCommFinalize", nccl.finalize);
  find(library, file, "ncclCommDestroy", nccl.destroy);
  find(library, file, "ncclCommAbort", nccl.abort);
  find(library, file, "ncclCommGetAsyncError", nccl.get_async_error);
  find(library, file, "ncclGetErrorString", nccl.get_error_string);
  find(library, file, "ncclGetLastError", nccl.get_last_error);
  find(library, file, "ncclGroupStart", nccl.group_start);
  find(library, file, "ncclGroupEnd", nccl.group_end);
  find(library, file, "ncclAllReduce", nccl.all_reduce);
  find(library, file, "ncclReduceScatter", nccl.reduce_scatter);
  find(library, file, "ncclAllGather", nccl.all_gather);
  find(library, file, "ncclReduce", nccl.reduce);
  find(library, file, "ncclBroadcast", nccl.broadcast);
  return nccl;
}

}  // namespace quire::cuda
