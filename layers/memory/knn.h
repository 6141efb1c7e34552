// Memorizing Transformer (Wu et al. 2022): a row carries the keys and values of its document's past tokens, each query
// attends to the top_k of its head with the largest products, and a learned gate mixes that with local attention.
#pragma once

#include "kernels/knn.h"
#include "kernels/knn_index.h"
#include "layers/carried/vector_log.h"
#include "layers/memory/knn_config.h"
#include "layers/memory/memory.h"
#include "layers/parts/basic.h"

namespace quire {

class KnnMemory final : public Memory {
 public:
  KnnMemory(const Scope& scope, const KnnConfig& config, const MixerShape& mixer);

  Variable combine(const Forward& f, const MixerTensors& mixer) override;
  bool joins_attention() const override { return config_.combine == KnnCombine::joint; }

 private:
  static constexpr int64_t kProbes = 64;  // tokens whose stored keys are compared with current ones

  // These are in knn_write.cpp: what memory stores, and what enters it.

  void declare_logs(const Scope& scope);
  // Returns how many entries each row appends.
  std::vector<int64_t> write(const Forward& f, const MixerTensors& mixer) const;
  // appended: what write has returned.
  void refresh(const Forward& f, const MixerTensors& mixer, const std::vector<int64_t>& appended) const;
  // Returns the first entry of the run with the greatest age, of a row's entries from `from` on.
  int64_t oldest_entry(const StateView& state, int64_t row, int64_t from) const;

  // These are in knn_search.cpp: what is retrieved.

  // Returns how many entries of each row may be retrieved; they are the newest ones.
  std::vector<int32_t> readable(const StateView& state) const;
  ops::KnnMemory view(const StateView& state) const;
  struct Selected {
    Tensor index;
    Tensor score;  // products with the queries as they are, wide [R, T, H, K]; undefined in the second pass
  };
  void select_inverted(const StateView& state, const Selected& to, const Tensor& q) const;
  // The share of an exact search's entries that are in index, for the first queries of the first row.
  double recall_of(const StateView& state, const Tensor& q, const Tensor& index) const;
  // Returns the entries that each query of a segment with carried state retrieves, i32 [R, T, H, K].
  Selected select(const Forward& f, const Tensor& q) const;
  Selected search(const Forward& f, const Tensor& q) const;

  // Holds the shares that the combination leaves for telemetry and retrievals, when these are requested.
  struct Shares {
    Tensor joint;    // joint: wide [R, H, T]
    Tensor content;  // content_gate: [R T, H]
  };
  // A share per head, g a + (1 - g) b of [R, T, H, D].
  Variable gated(const Forward& f, const MixerTensors& mixer, const Variable& found, Shares& shares) const;

  // knn_telemetry.cpp.

  void report_retrieved(const Forward& f, const MixerTensors& mixer, const Selected& selected,
                        const Shares& shares) const;
  // Returns the share of the result that is not retrieved, [R, T, H].
  std::vector<double> local_shares(const Forward& f, const Shares& shares) const;
  void observe(const Forward& f, const MixerTensors& mixer, const Tensor& index, const Shares& shares) const;
  void observe_gate(const Forward& f, const Tensor& content) const;
  double mean_age(const StateView& state, const Tensor& index) const;
  // Cosine between keys as they are stored and as the current weights would make them; no value without entries.
  std::optional<double> cosine(const Forward& f, const MixerTensors& mixer) const;

  std::string name_;
  uint32_t scope_;
  KnnConfig config_;
  MixerShape mixer_;
  Parameter gate_;                   // [H]
  std::optional<Linear> content_;    // content_gate
  LogGroupId entries_;               // keys, values, scales, inputs
  VectorLog keys_, values_;          // [Hk, D]
  LogId inputs_;                     // with stale.refresh
  LogId probe_inputs_, probe_keys_;  // without stale.refresh: one token of each step that writes
  // search: inverted. One inverted file per key head, made of the keys of a row.
  struct InvertedFiles final : DerivedState {
    std::vector<KnnIndex> of_heads;
    void clear() override {
      for (KnnIndex& index : of_heads) index.clear();
    }
  };
  DerivedId<InvertedFiles> inverted_;
};

}  // namespace quire
