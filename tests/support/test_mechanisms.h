// Mechanisms that exist only here, each in its own file: they prove that nothing else has to know one.
#pragma once

#include "layers/mechanism/mechanism.h"

namespace quire::test {

Mechanism fast_weight_memory();  // tests/support/fast_weight
Mechanism two_halves_stack();    // tests/support/two_halves

void register_test_mechanisms();  // once, however often it is called

}  // namespace quire::test
