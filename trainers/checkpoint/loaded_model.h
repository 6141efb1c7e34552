// A trained model for reading only, as quire eval, generate and needle use it.
#pragma once

#include "core/thread_pool.h"
#include "trainers/checkpoint/training_checkpoint.h"

namespace quire {

// Uses the threads of the configuration while it lives.
class LoadedModel {
 public:
  // `config` is the checkpoint's configuration, changed only in keys that may differ at evaluation.
  LoadedModel(const CheckpointReader& reader, RunConfig config, Weights weights);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const std::filesystem::path& checkpoint() const { return checkpoint_; }
  int64_t step() const { return step_; }
  const RunConfig& config() const { return config_; }
  Weights weights() const { return weights_; }
  const Machine& machine() const { return machine_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  ParameterStore& store() { return store_; }
  ThreadPool& threads() { return threads_; }  // for use on another thread than the one that made this
  const LanguageModel& model() const { return network_.model; }

 private:
  std::filesystem::path checkpoint_;
  int64_t step_;
  RunConfig config_;
  Weights weights_;
  Machine machine_;
  ThreadPool threads_;
  ThreadPool::Use use_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ParameterStore store_;
  Network network_;
};

}  // namespace quire
