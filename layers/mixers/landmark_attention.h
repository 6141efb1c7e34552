// The mixer of landmark attention (Mohtashami and Jaggi 2023): projections around its heads.
#pragma once

#include <memory>

#include "layers/basic.h"
#include "layers/mechanism.h"
#include "layers/mixers/landmark_heads.h"
#include "layers/surroundings.h"

namespace quire {

class LandmarkAttention final : public Part {
 public:
  LandmarkAttention(const Scope& scope, const Place& place, const Surroundings& around);

  Variable operator()(const Forward& f, const PartInput& input) const override;

 private:
  Variable heads_of(Tape& tape, const Linear& projection, const Variable& x, int64_t heads) const;  // [R, T, H, D]

  int64_t heads_;
  int64_t key_heads_;
  int64_t head_size_;
  Linear query_, key_, value_, out_;
  LandmarkHeads mixed_;
};

}  // namespace quire
