// The mixer of Transformer-VQ (Lingle 2024): keys are codewords. Tokens of the window are seen individually, older ones
// through the number and the mean value of the tokens of each codeword. With a gate and without a feed-forward layer it
// is the gated attention unit; with one query head (SHGA), one key head (MQA) or as many as queries (MHA).
#pragma once

#include <memory>
#include <optional>

#include "layers/mechanism/mechanism.h"
#include "layers/mixers/codebook.h"
#include "layers/mixers/vq_blocks.h"
#include "layers/mixers/vq_config.h"
#include "layers/model/surroundings.h"
#include "layers/parts/basic.h"
#include "layers/position/position_terms.h"

namespace quire {

class VqAttention final : public Part {
 public:
  VqAttention(const Scope& scope, const Place& place, const Surroundings& around);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }
  const Codebook& codebook() const { return *codebook_; }

 private:
  // [R, T, heads, D]: rows of norm D^(1/4), so that no product of two exceeds sqrt(D).
  Variable normalised(Tape& tape, const Linear& projection, const Variable& z, int64_t heads) const;

  VqConfig config_;
  VqBlocks blocks_;
  int64_t heads_;
  int64_t key_heads_;
  int64_t head_size_;
  int64_t value_size_;
  double eps_;
  Linear query_, key_, value_;
  std::optional<Linear> gate_;
  Linear out_;
  PositionTerms position_terms_;
  Parameter scale_;  // learned_scale: [H]
  std::unique_ptr<Codebook> codebook_;
  LossTermId commitment_;
  LogId window_keys_, window_values_, window_codes_;
  RegisterId mean_, count_;
};

}  // namespace quire
