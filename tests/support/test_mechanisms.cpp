#include "tests/support/test_mechanisms.h"

#include "layers/mechanism/mechanism_registry.h"
#include "tests/support/trivial_memories.h"

namespace quire::test {

void register_test_mechanisms() {
  register_trivial_memories();
  for (const Mechanism& ours : {fast_weight_memory(), two_halves_stack()}) {
    if (find_mechanism(ours.role, ours.kind) == nullptr) register_mechanism(ours);
  }
}

}  // namespace quire::test
