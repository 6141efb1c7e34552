// The mixer of MoBA (Lu et al. 2025): projections around its heads.
#pragma once

#include "layers/mechanism.h"
#include "layers/mixers/moba_heads.h"
#include "layers/surroundings.h"

namespace quire {

class MobaAttention final : public Part {
 public:
  MobaAttention(const Scope& scope, const Place& place, const Surroundings& around);

  Variable operator()(const Forward& f, const PartInput& input) const override;

 private:
  HeadProjections projections_;
  MobaHeads heads_;
};

}  // namespace quire
