// A block-recurrent layer (Hutchins et al. 2022, "Block-Recurrent Transformers"): sliding-window attention of which
// every token also reads a document's state vectors, and state vectors that read the tokens once a window.
#pragma once

#include <memory>

#include "layers/mixers/block_recurrent_states.h"
#include "layers/mixers/local_tail.h"

namespace quire {

class BlockRecurrent final : public Part {
 public:
  BlockRecurrent(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }

 private:
  RecurrentWeights state_weights() const;
  Variable heads_of(Tape& tape, const Linear& projection, const Variable& z) const;
  std::vector<RecurrentPiece> pieces(const Forward& f, const CarriedTokens& carried) const;
  void report(const Forward& f, const std::vector<RecurrentPiece>& pieces, const Variable& own, const Variable& read,
              const Variable& before, const Variable& after) const;

  std::string name_;
  BlockRecurrentConfig config_;
  HeadShape shape_;
  double norm_eps_;
  LocalTail tail_;
  Linear query_, key_, value_, state_query_, out_;  // state_query_: of tokens that read the states
  Parameter self_scale_, state_scale_;              // [H]: qk_norm
  RecurrentWeightsOf<Parameter> states_;
  RegisterId state_;  // [N, E]
};

}  // namespace quire
