// Backends are libraries loaded at run time from the folder of libquire.so. Each exports quire_register_backend.
#pragma once

#include <string>
#include <vector>

namespace quire {

// Identifies the headers both sides were compiled from.
const char* backend_build_id();

// Signature of `extern "C" const char* quire_register_backend(const char* build_id)`: binds the slots and returns the
// backend's name, or nullptr when the build ids differ.
using RegisterBackend = const char* (*)(const char* build_id);

struct BackendReport {
  std::string cpu;                   // e.g. "cpu-v3"
  std::vector<std::string> notices;  // one line for each library that was not found or could not be used
};

// Loads the best CPU kernels that run on this machine (the variant named by the environment variable QUIRE_CPU, when it
// is set), once per process; later calls return the same report. Throws Error(config) when none can be loaded.
const BackendReport& load_backends();

}  // namespace quire
