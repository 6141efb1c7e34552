#include "kernels/backend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "core/check.h"
#include "core/device.h"
#include "core/library.h"

namespace quire {

namespace {

struct Variant {
  const char* name;
  bool (*runs)();
  const char* needs;
};

bool runs_v3() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("bmi2") != 0;
}

bool runs_v4() {
  return runs_v3() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}

// The best variant comes first. A developer build has one variant for the machine it was built on, a release the
// portable ones.
constexpr Variant kVariants[] = {
    {"native", runs_v3, "AVX2 and FMA"}, {"v4", runs_v4, "AVX-512"}, {"v3", runs_v3, "AVX2 and FMA"}};

// Returns the name of the backend, or nullptr and the reason.
const char* load_library(const std::filesystem::path& path, std::string& reason) {
  const auto register_backend =
      reinterpret_cast<RegisterBackend>(library_function(path, "quire_register_backend", reason));
  if (register_backend == nullptr) return nullptr;
  const char* name = register_backend(build_id(), &reason);
  if (name == nullptr && reason.empty()) {
    reason = fmt::format("{}: built from other sources than libquire.so; build both again", path.filename().string());
  }
  return name;
}

CudaReport load_gpu() {
  CudaReport report;
  // The program has registered a backend itself, as tests do with one that runs on the host.
  if (has_device_backend(DeviceKind::cuda)) {
    report.gpu = device_backend(DeviceKind::cuda).name();
    return report;
  }
  const std::filesystem::path path = library_folder() / "libquire_cuda.so";
  if (!std::filesystem::exists(path)) {
    report.reason = "this program was built without libquire_cuda.so";
    return report;
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool gpu_allowed = visible == nullptr || *visible != '\0';
  // CUDA's libraries are large, so they are not loaded without a driver.
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) == nullptr) {
    const std::string why = dlerror();
    const bool absent = why.starts_with("libcuda.so.1: cannot open shared object file: No such file");
    report.reason = absent ? "there is no NVIDIA driver" : fmt::format("the NVIDIA driver cannot be loaded ({})", why);
    report.expected = gpu_allowed && !absent;
    return report;
  }
  report.expected = gpu_allowed;
  const char* name = load_library(path, report.reason);
  if (name != nullptr) report.gpu = name;
  return report;
}

FaissReport find_faiss() {
  FaissReport report;
  const std::filesystem::path path = library_folder() / "libquire_faiss.so";
  if (!std::filesystem::exists(path)) {
    report.reason = "this build has no libquire_faiss.so, because libfaiss-dev was not found";
    return report;
  }
  report.found = load_library(path, report.reason) != nullptr;
  return report;
}

BackendReport load() {
  BackendReport report;
  const std::filesystem::path folder = library_folder();
  const char* requested = std::getenv("QUIRE_CPU");
  for (const Variant& variant : kVariants) {
    if (requested != nullptr && requested != std::string_view(variant.name)) continue;
    const std::filesystem::path path = folder / fmt::format("libquire_cpu_{}.so", variant.name);
    if (!std::filesystem::exists(path)) {
      if (requested != nullptr) report.notices.push_back(fmt::format("{} is missing", path.filename().string()));
      continue;
    }
    if (!variant.runs()) {
      report.notices.push_back(fmt::format("{}: this processor has no {}", path.filename().string(), variant.needs));
      continue;
    }
    std::string reason;
    const char* name = load_library(path, reason);
    if (name == nullptr) {
      report.notices.push_back(reason);
      continue;
    }
    report.cpu = name;
    return report;
  }
  if (report.notices.empty()) {
    report.notices.push_back(requested != nullptr ? fmt::format("QUIRE_CPU is {}, not v3, v4 or native", requested)
                                                  : "libquire_cpu_v3.so is missing");
  }
  fail(ErrorKind::config, "no CPU kernels could be loaded from {}: {}", folder.string(),
       fmt::format("{}", fmt::join(report.notices, "; ")));
}

}  // namespace

const BackendReport& load_backends() {
  static const BackendReport report = load();
  return report;
}

const CudaReport& load_cuda() {
  static const CudaReport report = load_gpu();
  return report;
}

const FaissReport& load_faiss() {
  static const FaissReport report = find_faiss();
  return report;
}

}  // namespace quire
