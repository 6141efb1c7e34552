// The state vectors of a block-recurrent layer: their parameters, and what rows carry of them.
#pragma once

#include "layers/mixers/block_recurrent_states.h"
#include "layers/mixers/local_tail.h"

namespace quire {

class RecurrentVectors {
 public:
  // scope: that of the layer.
  RecurrentVectors(const Scope& scope, const Place& place);

  // Tokens whose keys the next update may need.
  static int64_t carried_tokens(const BlockRecurrentConfig& config);
  // Returns the windows that rows read in this pass, or parts of them, in the order of rows. A window that is not
  // complete at the end of the pass is completed by a later one. Keys count from the first one that is carried.
  std::vector<RecurrentPiece> pieces(const Forward& f, const CarriedTokens& carried) const;
  RecurrentWeights weights() const;
  RecurrentShape shape() const { return shape_; }
  Variable carried(const Forward& f) const { return Variable::constant(f.state.current(state_)); }
  // after: the states at the end of the pass. Rows without tokens keep what they have.
  void put(const Forward& f, const std::vector<RecurrentPiece>& pieces, const Variable& after) const;
  // norm: the length of a state vector, a mean over rows and states. moved: the length of its change in this pass.
  // keep: the mean share of a fixed gate.
  void report(const Forward& f, const Variable& before, const Variable& after) const;

 private:
  RecurrentGateOf<Parameter> gate(const Scope& scope, int64_t width, int64_t in) const;

  std::string name_;
  BlockRecurrentConfig config_;
  RecurrentShape shape_;
  RecurrentWeightsOf<Parameter> states_;
  RegisterId state_;  // [N, E]
};

// The length of elements [first, first + count) of a vector.
double length_of(const std::vector<double>& x, size_t first, size_t count);

}  // namespace quire
