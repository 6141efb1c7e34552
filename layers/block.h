// One decoder block: mixer and feed-forward layer around the residual stream.
#pragma once

#include <memory>
#include <optional>

#include "layers/basic.h"
#include "layers/mixers/mixer.h"

namespace quire {

class Block {
 public:
  Block(const Scope& scope, const ModelConfig& model, const LayerConfig& layer, std::span<const MemoryConfig> memories,
        std::shared_ptr<PositionTables> tables = std::make_shared<PositionTables>());
  Variable operator()(const Forward& f, const Variable& x) const;  // [R, T, E] -> [R, T, E]
  const Mixer& mixer() const { return *attention_; }

 private:
  Variable run(const Forward& f, const Variable& x) const;
  // What attention and feed-forward layer add, their normalisation included when it comes first.
  Variable mixed(const Forward& f, const Variable& x) const;
  Variable fed(const Forward& f, const Variable& h) const;
  // x + what a layer adds, with dropout. Layer drop: all of it or nothing for a row.
  Variable sum(const Forward& f, const Variable& added, const Variable& x, uint32_t scope) const;
  // One of the above, kept or recomputed.
  using Part = Variable (Block::*)(const Forward& f, const Variable& x) const;
  Variable call(Part part, Recompute when, const Forward& f, const Variable& x) const;

  bool pre_;
  Recompute recompute_;
  double dropout_;
  uint32_t attention_dropout_scope_;
  uint32_t mlp_dropout_scope_;
  double layer_dropout_;
  Norm attention_norm_;
  std::optional<Norm> mlp_norm_;  // with a feed-forward layer
  std::unique_ptr<Mixer> attention_;
  std::optional<Mlp> mlp_;
  LogId hidden_;  // Transformer-XL: the block's inputs before its normalisation
};

}  // namespace quire
