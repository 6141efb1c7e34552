#include "trainers/model.h"

#include "core/check.h"
#include "kernels/backend.h"

namespace quire {

Machine Machine::choose(const RunSection& run) {
  const BackendReport& report = load_backends();
  if (run.device == DeviceChoice::cuda) {
    fail(ErrorKind::config, "run.device: cuda was asked for but this build has no CUDA backend; use auto or cpu");
  }
  if (run.precision == Precision::bf16) {
    fail(ErrorKind::config, "run.precision: bf16 is refused on the CPU, where it is slower than f32; use f32");
  }
  return {kCpu, run.precision == Precision::f64 ? DType::f64 : DType::f32, report.cpu};
}

}  // namespace quire
