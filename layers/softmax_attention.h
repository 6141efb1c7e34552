// The softmax mixer: projections, positions, window, cache.
#pragma once

#include <memory>
#include <optional>

#include "autograd/functions/attention.h"
#include "layers/basic.h"
#include "layers/memory/memory.h"
#include "layers/position_tables.h"

namespace quire {

class SoftmaxAttention {
 public:
  SoftmaxAttention(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
                   std::span<const MemoryConfig> memories, std::shared_ptr<PositionTables> tables);

  // z [R, T, E]: the (normalised) input. carried_z [R, M, E]: carried input states, normalised alike, when the layer's
  // cache holds hidden states; carried_length tells how many are valid, newest last. Returns what is added to the
  // residual stream, [R, T, E].
  Variable operator()(const Forward& f, const Variable& z, const Variable& carried_z,
                      std::span<const int64_t> carried_length) const;

 private:
  Variable heads_of(Tape& tape, const Linear& projection, const Variable& x, int64_t heads) const;  // [R, T, H, D]
  // Queries and keys that logits are made of, turned to their positions.
  void rotate(Tape& tape, AttentionVariables& x, const Tensor& cache_head) const;
  // Terms by distance: tables of `reach` entries.
  void add_position_terms(const Forward& f, AttentionVariables& x, int64_t reach) const;

  AttentionConfig config_;
  Position position_;
  int64_t width_;
  int64_t heads_;
  int64_t key_heads_;
  int64_t head_size_;
  double dropout_;
  double position_dropout_;
  uint32_t random_scope_;
  Linear query_, key_, value_, out_;
  std::optional<Linear> relative_;  // Transformer-XL: W_r
  Parameter u_, v_;                 // Transformer-XL: global content and position biases, [H, D]
  Parameter bias_table_;            // T5: [H, buckets]
  Parameter head_scale_;            // qk_norm: [H]
  LogId cached_keys_, cached_values_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::shared_ptr<PositionTables> tables_;
};

}  // namespace quire
