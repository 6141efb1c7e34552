// A memory beside the mixer of some layers.
#pragma once

#include "layers/mechanism_registry.h"

namespace quire {

struct MemoryConfig {
  std::vector<int64_t> layers;
  KindConfig mechanism = KindConfig::unset(Role::memory);

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("layers", layers,
            {.help = "the layers that have this memory, counted from 0; negative numbers count from the end",
             .required = true});
    v.kinds("kind", RegisteredKinds(mechanism), KindOptions::beside,
            {.help = "the kind of memory; its options stand beside", .required = true});
  }
};

}  // namespace quire
