#include "trainers/setup/model.h"

#include <algorithm>

#include "core/check.h"
#include "core/cores.h"
#include "core/log.h"
#include "kernels/backend.h"

namespace quire {

namespace {

// Beyond it a step may take minutes in place of milliseconds.
constexpr int kMaxThreadsPerCore = 4;

// Returns whether the run computes on a GPU. Throws Error(config) when it must and cannot.
bool uses_gpu(DeviceChoice choice) {
  if (choice == DeviceChoice::cpu) return false;
  const CudaReport& cuda = load_cuda();
  if (!cuda.gpu.empty()) return true;
  if (choice == DeviceChoice::cuda) {
    fail(ErrorKind::config, "run.device: cuda was asked for but cannot be used: {}; use auto or cpu", cuda.reason);
  }
  return false;
}

}  // namespace

int threads_of(const RunSection& run, const Ranks& ranks) {
  if (run.threads == 0) return ranks.cores();
  const int cores = cores_of_machine();
  if (run.threads > int64_t{kMaxThreadsPerCore} * cores) {
    fail(ErrorKind::config,
         "run.threads: {} threads on the {} cores of this machine would wait for each other most of the time; give at "
         "most {}, or 0 for one per core",
         run.threads, cores, kMaxThreadsPerCore * cores);
  }
  return static_cast<int>(run.threads);
}

void warn_of_threads(const RunSection& run) {
  const int cores = cores_of_machine();
  if (run.threads <= cores) return;
  log_warn(fmt::format("run.threads: {} threads share the {} cores of this machine, {}", run.threads, cores,
                       run.threads > int64_t{kMaxThreadsPerCore} * cores ? "where quire train refuses so many"
                                                                         : "which is slower than one per core"));
}

DType computing_type(Precision precision, DeviceKind kind) {
  switch (precision) {
    case Precision::automatic:
      return kind == DeviceKind::cuda ? DType::bf16 : DType::f32;
    case Precision::f32:
      return DType::f32;
    case Precision::f64:
      return DType::f64;
    case Precision::bf16:
      return DType::bf16;
  }
  fail(ErrorKind::internal, "run.precision: {} is unknown", static_cast<int>(precision));
}

Machine Machine::choose(const RunSection& run) {
  const BackendReport& report = load_backends();
  const Device device{uses_gpu(run.device) ? DeviceKind::cuda : DeviceKind::cpu, 0};
  if (device == kCpu && run.precision == Precision::bf16) {
    fail(ErrorKind::config, "run.precision: bf16 is refused on the CPU, where it is slower than f32; use f32");
  }
  const bool automatic = run.device == DeviceChoice::automatic;
  return {
      .device = device,
      .dtype = computing_type(run.precision, device.kind),
      .backend = device == kCpu ? report.cpu : load_cuda().gpu,
      .without_gpu = automatic ? load_cuda().reason : "",
      .gpu_expected = automatic && load_cuda().expected,
  };
}

}  // namespace quire
