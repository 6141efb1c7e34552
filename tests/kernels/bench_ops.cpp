// Times every operation of kernels/ on the largest of the calls that the cases of the table make of it:
//   bench_ops [cpu|cuda] [f64|f32|bf16] [part of a name]
// One line each: microseconds a call, bytes of the operands and floating-point operations over that time. These are
// small calls, which find an operation that became slow; how fast a model is says `quire bench`.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "kernels/backend.h"
#include "kernels/op.h"
#include "tests/kernels/op_cases.h"

namespace {

using namespace quire;
using namespace quire::test;

constexpr int kRepeats = 5;

struct Largest {
  const OpCase* op_case = nullptr;
  double bytes = -1;  // of a call
};

bool can_run(const OpCase& op_case, DType dtype, Device device) {
  if (dtype != DType::bf16) return true;
  const bool has_own_types = op_case.op == "copy" || op_case.op == "convert";
  return !has_own_types && (device.kind == DeviceKind::cuda || op_case.has_bf16_on_cpu);
}

void run_counted(const OpCase& op_case, DType dtype, Device device) {
  for (OpBase* slot : OpBase::all()) slot->reset_stats();
  run(op_case, dtype, device);
}

int bench(const std::string& device_name, const std::string& type_name, const std::string& part) {
  load_backends();
  const Device device = device_name == "cuda" ? Device{DeviceKind::cuda, 0} : kCpu;
  if (device.kind == DeviceKind::cuda && load_cuda().gpu.empty()) {
    std::fprintf(stderr, "bench_ops: error: no GPU: %s\n", load_cuda().reason.c_str());
    return 5;
  }
  DType dtype = DType::f32;
  for (const DType known : {DType::f64, DType::bf16}) dtype = type_name == name_of(known) ? known : dtype;
  if (type_name != name_of(dtype) || (device_name != "cpu" && device_name != "cuda")) {
    std::fprintf(stderr, "usage: bench_ops [cpu|cuda] [f64|f32|bf16] [part of a name]\n");
    return 2;
  }
  OpBase::set_timing(true);
  std::map<const OpBase*, Largest> largest;
  for (const OpCase& op_case : op_cases()) {
    if (!can_run(op_case, dtype, device)) continue;
    run_counted(op_case, dtype, device);
    for (const OpBase* slot : OpBase::all()) {
      const OpStats stats = slot->stats();
      Largest& largest_case = largest[slot];
      const double bytes = stats.calls == 0 ? -1 : stats.bytes / static_cast<double>(stats.calls);
      if (bytes > largest_case.bytes) largest_case = {&op_case, bytes};
    }
  }
  std::printf("%-26s %-44s %10s %9s %9s\n", "operation", "case", "us", "GB/s", "GFLOP/s");
  for (OpBase* slot : OpBase::all()) {
    const Largest& largest_case = largest[slot];
    if (largest_case.op_case == nullptr || std::string(slot->name()).find(part) == std::string::npos) continue;
    double best = 0;
    OpStats stats;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      run_counted(*largest_case.op_case, dtype, device);
      stats = slot->stats();
      const double seconds = stats.seconds / static_cast<double>(stats.calls);
      best = repeat == 0 ? seconds : std::min(best, seconds);
    }
    const double calls = static_cast<double>(stats.calls);
    std::printf("%-26s %-44s %10.2f %9.3f %9.3f\n", slot->name(), largest_case.op_case->name().c_str(), best * 1e6,
                stats.bytes / calls / best * 1e-9, stats.flops / calls / best * 1e-9);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int at, const char* otherwise) { return std::string(argc > at ? argv[at] : otherwise); };
  return bench(argument(1, "cpu"), argument(2, "f32"), argument(3, ""));
}
