// One decoder block: mixer and feed-forward layer around the residual stream.
#pragma once

#include "layers/softmax_attention.h"

namespace quire {

class Block {
 public:
  Block(const Scope& scope, const ModelConfig& model, const LayerConfig& layer, std::span<const MemoryConfig> memories,
        std::shared_ptr<PositionTables> tables = std::make_shared<PositionTables>());
  Variable operator()(const Forward& f, const Variable& x) const;  // [R, T, E] -> [R, T, E]

 private:
  bool pre_;
  double dropout_;
  uint32_t attention_dropout_scope_;
  uint32_t mlp_dropout_scope_;
  Norm attention_norm_, mlp_norm_;
  SoftmaxAttention attention_;
  Mlp mlp_;
  LogId hidden_;  // Transformer-XL: the block's inputs before its normalisation
};

}  // namespace quire
