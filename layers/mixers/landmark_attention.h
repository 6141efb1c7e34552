// The mixer of landmark attention (Mohtashami and Jaggi 2023): projections around its heads.
#pragma once

#include <memory>

#include "layers/mechanism.h"
#include "layers/mixers/landmark_heads.h"
#include "layers/surroundings.h"

namespace quire {

class LandmarkAttention final : public Part {
 public:
  LandmarkAttention(const Scope& scope, const Place& place, const Surroundings& around);

  Variable operator()(const Forward& f, const PartInput& input) const override;

 private:
  HeadProjections projections_;
  LandmarkHeads heads_;
};

}  // namespace quire
