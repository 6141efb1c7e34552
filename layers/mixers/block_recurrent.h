// A block-recurrent layer (Hutchins et al. 2022, "Block-Recurrent Transformers"): sliding-window attention of which
// every token also reads a document's state vectors, and state vectors that read the tokens once a window.
#pragma once

#include <memory>

#include "layers/mixers/block_recurrent_tokens.h"
#include "layers/mixers/block_recurrent_vectors.h"

namespace quire {

class BlockRecurrent final : public Part {
 public:
  BlockRecurrent(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }

 private:
  void report(const Forward& f, const std::vector<RecurrentPiece>& pieces, const Variable& own,
              const Variable& read) const;

  std::string name_;
  BlockRecurrentConfig config_;
  RecurrentTokens tokens_;
  RecurrentVectors vectors_;
};

}  // namespace quire
