// A memory beside the mixer of some layers.
#pragma once

#include "layers/mechanism/mechanism_registry.h"

namespace quire {

struct MemoryConfig {
  std::vector<int64_t> layers;
  KindConfig mechanism = KindConfig::unset(Role::memory);

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("layers", layers,
            {.help = "layers that have this memory, numbered from 0; negative numbers count from the end",
             .required = true});
    v.kinds("kind", RegisteredKinds(mechanism), KindOptions::beside,
            {.help = "kind of memory; its options stand beside it", .required = true});
  }
};

}  // namespace quire
