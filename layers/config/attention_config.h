// The configuration of a layer's mixer.
#pragma once

#include <cmath>

#include "layers/config/position_config.h"
#include "layers/mechanism/mechanism_registry.h"

namespace quire {

struct AttentionConfig {
  KindConfig mechanism{Role::mixer};
  double shifted_share = 0;

  // Features of the input that are those of the token before.
  int64_t shifted_features(int64_t width) const {
    return static_cast<int64_t>(std::llround(shifted_share * static_cast<double>(width)));
  }

  template <class Visitor>
  void fields(Visitor& v) {
    v.kinds("kind", RegisteredKinds(mechanism), KindOptions::in_section,
            {.help = "kind of mixer; its options stand in a section of that name"});
    v.field("shifted_share", shifted_share,
            {.help = "share of the mixer's input features that are those of the token before (RWKV's token shift, with "
                     "fixed shares). With 0.5 a layer learns much sooner to look up what followed an earlier "
                     "occurrence of a token, which small models otherwise learn late or never",
             .min = 0,
             .max = 1,
             .meant = "token_shift"});
  }
};

}  // namespace quire
