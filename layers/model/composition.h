// Checks which parts can be combined. Rules about positions are here, those of a mechanism in its descriptor; the check
// of ModelConfig and the tests read both.
#pragma once

#include <span>

#include "layers/mechanism/mechanism.h"

namespace quire {

// These rules hold for the layers of every mixer.
std::span<const CompositionRule> attention_rules();

}  // namespace quire
