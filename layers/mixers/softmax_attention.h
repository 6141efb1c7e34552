// The softmax mixer: projections, positions, window, cache.
#pragma once

#include <memory>

#include "autograd/functions/attention.h"
#include "layers/mechanism/mechanism.h"
#include "layers/memory/memory.h"
#include "layers/mixers/softmax_config.h"
#include "layers/mixers/softmax_projections.h"
#include "layers/model/surroundings.h"
#include "layers/parts/basic.h"
#include "layers/position/position_terms.h"

namespace quire {

class SoftmaxAttention final : public Part {
 public:
  SoftmaxAttention(const Scope& scope, const Place& place, const Surroundings& around);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }

 private:
  void declare_call(const Scope& scope, const Place& place, const Surroundings& around) const;
  // Holds what the layer carries of its own inputs (cache.kind: hidden), normalised like the input; undefined without.
  struct CarriedInputs {
    Variable z;                   // [R, M, E], newest last
    std::vector<int64_t> length;  // valid ones per segment
  };
  CarriedInputs carried_inputs(const Forward& f, const PartInput& input) const;
  // The settings with the kernels that were chosen for this pass.
  ops::AttentionInputs with_kernels(const Forward& f, ops::AttentionInputs settings) const;
  void describe(const Forward& f, MixerTensors& mixer, const CarriedInputs& inputs) const;
  // Rotates queries and keys by their positions (position.kind: rope).
  void rotate(Tape& tape, AttentionVariables& x, const Tensor& cache_head) const;

  SoftmaxConfig config_;
  PositionConfig position_;
  int64_t width_;
  int64_t heads_;
  int64_t key_heads_;
  int64_t head_size_;
  std::vector<double> frequencies_;  // position.kind: rope
  double scale_;                     // of the products of queries and keys
  double dropout_;
  uint32_t random_scope_;
  SoftmaxProjections projections_;
  PositionTerms position_terms_;
  Parameter head_scale_;  // qk_norm: [H]
  LogId cached_inputs_;   // Transformer-XL: the layer's inputs before its normalisation
  LogId cached_keys_, cached_values_;
  std::vector<std::unique_ptr<Memory>> memories_;
  std::shared_ptr<PositionTables> tables_;
};

}  // namespace quire
