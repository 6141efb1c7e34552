// A model with its weights, and the machine it runs on.
#pragma once

#include <filesystem>
#include <memory>

#include "core/ranks/ranks.h"
#include "core/thread_pool.h"
#include "layers/model/language_model.h"
#include "trainers/setup/config.h"

namespace quire {

// The device and number type of a run. Throws Error(config) when the machine cannot do what the configuration asks for.
struct Machine {
  Device device;
  DType dtype;          // type of activations, carried state and the matrices that products read
  std::string backend;  // "cpu-v3", "NVIDIA H200"
  // The folder for state in files; empty: the folder for temporary files.
  std::filesystem::path scratch = {};
  std::string without_gpu = {};  // the reason why no GPU is used, when run.device would have used one
  bool gpu_expected = false;     // whether a GPU is expected here (CudaReport)

  static Machine choose(const RunSection& run);
};

// Returns the threads of this rank: run.threads or, when that is 0, its part of the cores that this process may run on,
// which it shares with the other ranks of its host. Throws Error(config) for more than a few threads per core.
int threads_of(const RunSection& run, const Ranks& ranks);
// Warns when there are more threads than cores of this machine.
void warn_of_threads(const RunSection& run);

// Returns the number type of a precision on a kind of device.
DType computing_type(Precision precision, DeviceKind kind);

// The network of a configuration over a store of weights. Evaluation and generation make a second network over the same
// store, with another window, cache or subsequence and with its own state.
struct Network {
  Network(ParameterStore& store, const ModelConfig& config, int64_t vocabulary, DType dtype)
      : model(Scope(store, declared, dtype), config, vocabulary) {}
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  Declarations declared;
  LanguageModel model;
};

}  // namespace quire
