// A model with its weights, and the machine it runs on.
#pragma once

#include <filesystem>
#include <memory>

#include "core/thread_pool.h"
#include "layers/language_model.h"
#include "trainers/run/config.h"

namespace quire {

// Where and in which type a run computes. Error(config) when the machine cannot do what the configuration asks.
struct Machine {
  Device device;
  DType dtype;          // of activations, carried state and the matrices that products read
  std::string backend;  // "cpu-v3", "NVIDIA H200"
  // Folder of what lies in files and not in memory; empty is the one for temporary files.
  std::filesystem::path scratch = {};
  std::string without_gpu = "";  // why there is none, when one would have been used

  static Machine choose(const RunSection& run);
};

// What a precision means on a kind of device.
DType computing_type(Precision precision, DeviceKind kind);

// The network of a configuration over a store of weights. A second network over the same store (other window, cache or
// subsequence) serves evaluation and generation; its state layout is its own.
struct Network {
  Network(ParameterStore& store, const ModelConfig& config, int64_t vocabulary, DType dtype,
          const Insertion& insertion = {})
      : model(Scope(store, layout, dtype), config, vocabulary, insertion) {}

  StateLayout layout;
  LanguageModel model;
};

}  // namespace quire
