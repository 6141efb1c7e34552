// Backends are libraries loaded at run time from the folder of libquire.so. Each exports quire_register_backend.
#pragma once

#include <string>
#include <vector>

namespace quire {

// Signature of `extern "C" const char* quire_register_backend(const char* build_id, std::string* reason)`: binds the
// slots and returns the backend's name. Returns nullptr when the build ids differ, or with the cause in *reason. Throws
// Error(config) for a wrong value in the environment.
using RegisterBackend = const char* (*)(const char* build_id, std::string* reason);

struct BackendReport {
  std::string cpu;                   // e.g. "cpu-v3"
  std::vector<std::string> notices;  // one line for each library that was not found or could not be used
};

// Loads the best CPU kernels that run on this machine (the variant named by the environment variable QUIRE_CPU, when it
// is set), once per process; later calls return the same report. Throws Error(config) when none can be loaded.
const BackendReport& load_backends();

struct CudaReport {
  std::string gpu;        // e.g. "NVIDIA H200"; empty without one that can be used
  std::string reason;     // the reason why there is none
  bool expected = false;  // whether one is expected: there is a driver, and CUDA_VISIBLE_DEVICES is not empty
};

// Looks for a GPU, once per process, and loads the CUDA kernels. A machine without one continues with its CPU. Throws
// Error(config) only for an environment variable of the kernels with a wrong value.
const CudaReport& load_cuda();

struct FaissReport {
  bool found = false;
  std::string reason;  // the reason why it was not loaded
};

// Looks for the inverted file of FAISS, once per process, when it is needed (kernels/knn_index.h). Never throws.
const FaissReport& load_faiss();

}  // namespace quire
