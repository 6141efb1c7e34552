#include "kernels/cuda/cudnn/cudnn_library.h"

#include <cudnn_version.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "core/check.h"
#include "core/library.h"

namespace quire::cuda {

namespace {

constexpr const char* kLibrary = "libcudnn.so.9";
constexpr const char* kRuntime = "libcudart.so.13";
constexpr const char* kCompiler = "libnvrtc.so.13";  // cuDNN opens it by name alone
constexpr const char* kAdvice =
    "cuDNN's attention needs cuDNN 9.16 or newer for CUDA 13: install NVIDIA's package cudnn9-cuda-13, or put the "
    "folder "
    "of libcudnn.so.9 on LD_LIBRARY_PATH; or use model.attention.softmax.implementation: own";
// In versions up to 9.15 the backward pass is wrong for numbers of keys that are no multiple of 128, unless they are
// padded.
constexpr size_t kOldest = 91600;

struct Library {
  void* handle = nullptr;
  size_t version = 0;
  std::string missing_compiler;
};

Library open() {
  Library library;
  std::string reason;
  library.handle = open_library(kLibrary, reason);
  if (library.handle == nullptr) fail(ErrorKind::config, "cuDNN cannot be loaded: {}; {}", reason, kAdvice);
  const auto version = reinterpret_cast<size_t (*)()>(::dlsym(library.handle, "cudnnGetVersion"));
  if (version == nullptr) fail(ErrorKind::config, "{} does not tell its version; {}", kLibrary, kAdvice);
  library.version = version();
  const std::string why = why_cudnn_refused(library.version, CUDNN_VERSION);
  if (!why.empty()) throw Error(ErrorKind::config, why);
  // cuDNN's headers clear workspaces through CUDA's runtime library, and would take that of CUDA 12 if both are there.
  ::setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", kRuntime, 0);
  const char* const runtime = std::getenv("CUDNN_FRONTEND_CUDART_LIB_NAME");
  if (open_library(runtime, reason) == nullptr) {
    fail(ErrorKind::config, "cuDNN's attention needs CUDA's runtime library: {}; put its folder on LD_LIBRARY_PATH",
         reason);
  }
  if (open_library(kCompiler, reason) == nullptr) {
    library.missing_compiler = fmt::format(
        "; CUDA's run-time compiler, which it may need, was not found ({}): put its folder on LD_LIBRARY_PATH", reason);
  }
  return library;
}

const Library& library() {
  static std::mutex mutex;
  static Library loaded;
  const std::lock_guard lock(mutex);
  if (loaded.handle == nullptr) loaded = open();
  return loaded;
}

}  // namespace

void* load_cudnn() {
  return library().handle;
}

const std::string& missing_compiler() {
  return library().missing_compiler;
}

size_t cudnn_version_number() {
  return library().version;
}

std::string cudnn_version_text(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string why_cudnn_refused(size_t version, size_t compiled) {
  if (version < kOldest) return fmt::format("cuDNN {} is refused; {}", cudnn_version_text(version), kAdvice);
  if (version / 10000 != compiled / 10000) {
    return fmt::format("cuDNN {} is refused, since this program was compiled for cuDNN {}; {}",
                       cudnn_version_text(version), compiled / 10000, kAdvice);
  }
  return "";
}

}  // namespace quire::cuda
