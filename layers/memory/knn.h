// Memorizing Transformer (Wu et al. 2022): a row carries the keys and values of its document's past tokens, each query
// attends to the top_k of its head with the largest products, and a learned gate mixes that with local attention.
#pragma once

#include <map>

#include "kernels/knn.h"
#include "kernels/knn_index.h"
#include "layers/basic.h"
#include "layers/memory/knn_config.h"
#include "layers/memory/memory.h"

namespace quire {

class KnnMemory final : public Memory {
 public:
  KnnMemory(const Scope& scope, const KnnConfig& config, const MixerShape& mixer);

  Variable combine(const Forward& f, const MixerTensors& mixer) override;
  bool joins_attention() const override { return config_.combine == KnnCombine::joint; }

 private:
  // Vectors [Hk, D] in a ring, with a ring of scales beside them when they are stored in 8 bits.
  struct Vectors {
    LogId log, scale;
  };
  Vectors declare(const Scope& scope, const std::string& name) const;
  // Applies write to the log and the scales with values as they are stored.
  void store(const Vectors& vectors, const Tensor& values,
             const std::function<void(LogId, const Tensor&)>& write) const;
  // Entries of each row that may be retrieved, the newest ones.
  std::vector<int32_t> readable(const StateView& state) const;
  ops::KnnMemory view(const StateView& state) const;
  // The inverted file of a row and key head, brought up to date; nullptr while it has learned nothing.
  KnnIndex* index_of(const StateView& state, const ops::KnnMemory& memory, int64_t row, int64_t key_head);
  void select_inverted(const StateView& state, const Tensor& index, const Tensor& q);
  // The share of an exact search's entries that are in index, for the first queries of the first row.
  double recall_of(const StateView& state, const Tensor& q, const Tensor& index) const;
  // The entries that each query of the first segment of a row retrieves, i32 [R, T, H, K].
  Tensor select(const Forward& f, const Tensor& q);
  // Which tokens of each row a step writes: counts[r] from begins[r] on.
  struct Entering {
    int64_t stride;
    std::vector<int64_t> begins = {}, counts = {};
    void add(int64_t begin, int64_t count, int64_t position);
  };
  void write(const Forward& f, const MixerTensors& mixer) const;
  void refresh(const Forward& f, const MixerTensors& mixer);
  // What the combination leaves for telemetry, when somebody looks.
  struct Shares {
    Tensor joint;    // joint: wide [R, H, T]
    Tensor content;  // content_gate: [R T, H]
  };
  // A share per head, g a + (1 - g) b of [R, T, H, D].
  Variable gated(const Forward& f, const MixerTensors& mixer, const Variable& found, Shares& shares) const;
  void observe(const Forward& f, const MixerTensors& mixer, const Tensor& index, const Shares& shares) const;
  void observe_gate(const Forward& f, const Tensor& content) const;
  double mean_age(const StateView& state, const Tensor& index) const;
  // Cosine between keys as they are stored and as the weights of now would make them; nothing without entries.
  std::optional<double> cosine(const Forward& f, const MixerTensors& mixer) const;

  std::string name_;
  uint32_t scope_;
  KnnConfig config_;
  MixerShape mixer_;
  Parameter gate_;                 // [H]
  std::optional<Linear> content_;  // content_gate
  Vectors keys_, values_;
  LogId inputs_;                     // with stale.refresh
  LogId probe_inputs_, probe_keys_;  // one token a step without
  // By row of the pool and key head, with the document that they are of. What they hold follows from memory alone.
  struct Index {
    int64_t document = -1;
    std::unique_ptr<KnnIndex> lists;
  };
  std::map<std::pair<int64_t, int64_t>, Index> indices_;
};

}  // namespace quire
