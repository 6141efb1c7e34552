#include "kernels/backend.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/check.h"

namespace quire {

namespace {

std::filesystem::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&backend_build_id), &info) == 0 || info.dli_fname == nullptr) {
    fail(ErrorKind::internal, "backend: the folder of libquire.so is unknown");
  }
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

bool runs_v3() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("bmi2") != 0;
}

BackendReport load() {
  BackendReport report;
  const std::filesystem::path folder = library_folder();
  // A developer build has one variant for the machine it was built on; a release has the portable one.
  for (const char* variant : {"native", "v3"}) {
    const std::filesystem::path path = folder / fmt::format("libquire_cpu_{}.so", variant);
    if (!std::filesystem::exists(path)) continue;
    if (!runs_v3()) {
      report.notices.push_back(fmt::format("{}: this processor has no AVX2 and FMA", path.filename().string()));
      continue;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      report.notices.push_back(fmt::format("{}: {}", path.filename().string(), dlerror()));
      continue;
    }
    const auto register_backend = reinterpret_cast<RegisterBackend>(dlsym(handle, "quire_register_backend"));
    const char* name = register_backend == nullptr ? nullptr : register_backend(backend_build_id());
    if (name == nullptr) {
      report.notices.push_back(
          fmt::format("{}: built from other sources than libquire.so; build both again", path.filename().string()));
      continue;
    }
    report.cpu = name;
    return report;
  }
  fail(ErrorKind::config, "no CPU kernels could be loaded from {}: {}", folder.string(),
       report.notices.empty() ? "libquire_cpu_v3.so is missing" : fmt::format("{}", fmt::join(report.notices, "; ")));
}

}  // namespace

const char* backend_build_id() {
  return QUIRE_BUILD_ID;
}

const BackendReport& load_backends() {
  static const BackendReport report = load();
  return report;
}

}  // namespace quire
