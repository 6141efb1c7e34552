// A mixer with the gated delta rule: a matrix per head that each token decays, reads and writes. It has no positions.
#pragma once

#include "layers/mechanism/mechanism.h"
#include "layers/mixers/delta_mix.h"
#include "layers/parts/basic.h"

namespace quire {

DeltaShape delta_shape(const ModelConfig& model, const DeltaConfig& config);

class DeltaLayer final : public Part {
 public:
  DeltaLayer(const Scope& scope, const Place& place);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }

 private:
  DeltaWeights weights() const;
  DeltaInput input_of(const Forward& f, const Variable& z) const;
  void report(const Forward& f, const DeltaMix& mix) const;

  std::string name_;
  DeltaConfig config_;
  DeltaShape shape_;
  DeltaWeightsOf<Parameter> parameters_;
  Linear out_;
  RegisterId state_;                               // [HV, Dk, Dv]
  RegisterId query_taps_, key_taps_, value_taps_;  // [W - 1, channels]; without convolutions not there
};

}  // namespace quire
