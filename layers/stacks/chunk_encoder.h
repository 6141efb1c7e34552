// The encoder of chunks: layers of attention in both directions with rotary positions 0, 1, ..., each chunk by itself.
#pragma once

#include <memory>
#include <vector>

#include "layers/mixers/head_projections.h"
#include "layers/mixers/head_rotation.h"
#include "layers/pass/recomputed.h"

namespace quire {

class ChunkEncoder {
 public:
  ChunkEncoder(const Scope& scope, const ModelConfig& model, int64_t layers, int64_t positions);

  // Turns chunks [B, C, E] into their representations [B, C, E]. There is no dropout.
  Variable operator()(const Forward& f, const Variable& chunks) const;

 private:
  struct Layer {
    Layer(const Scope& scope, const ModelConfig& model);
    Norm attention_norm;
    HeadProjections attention;
    Norm mlp_norm;
    Mlp mlp;
    Recomputed recomputed;
  };
  Variable run(const Layer& layer, const Forward& f, const Variable& x) const;

  bool recomputes_;
  double scale_;
  Norm norm_, out_norm_;
  HeadRotation rotation_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace quire
