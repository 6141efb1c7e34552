// Memorizing Transformer (Wu et al. 2022): a row carries the keys and values of its document's past tokens, each query
// attends to the top_k of its head with the largest products, and a learned gate mixes that with local attention.
#pragma once

#include "kernels/knn.h"
#include "layers/memory/memory.h"

namespace quire {

class KnnMemory final : public Memory {
 public:
  KnnMemory(const Scope& scope, const MemoryConfig& config, const MixerShape& mixer);

  Variable combine(const Forward& f, const MixerTensors& mixer) override;
  bool joins_softmax() const override { return config_.combine == KnnCombine::joint; }

 private:
  // Vectors [Hk, D] in a ring, with a ring of scales beside them when they are stored as 8-bit integers.
  struct Vectors {
    LogId log, scale;
  };
  Vectors declare(const Scope& scope, const std::string& name) const;
  // Applies write to the log and the scales with values as they are stored.
  void store(const Vectors& vectors, const Tensor& values,
             const std::function<void(LogId, const Tensor&)>& write) const;
  ops::KnnMemory view(const StateView& state) const;
  // The entries that each query of the first segment of a row retrieves, i32 [R, T, H, K].
  Tensor select(const Forward& f, const Tensor& q) const;
  void write(const Forward& f, const MixerTensors& mixer) const;
  void refresh(const Forward& f, const MixerTensors& mixer);
  void observe(const Forward& f, const MixerTensors& mixer, const Tensor& index, const Tensor& share) const;
  double mean_age(const StateView& state, const Tensor& index) const;
  // Cosine between keys as they are stored and as the weights of now would make them; nothing without entries.
  std::optional<double> cosine(const Forward& f, const MixerTensors& mixer) const;

  std::string name_;
  uint32_t scope_;
  MemoryConfig config_;
  MixerShape mixer_;
  Parameter gate_;  // [H]
  Vectors keys_, values_;
  LogId inputs_;                     // with stale.refresh
  LogId probe_inputs_, probe_keys_;  // one token a step without
};

}  // namespace quire
