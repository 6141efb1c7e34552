// Two mechanisms that do as little as a mechanism can. The mechanism suite is tried on them first, and the interface
// of layers/memory is: what they cannot do cleanly, no real mechanism could.
//
//   trivial_register  carries the running sum of the document's value vectors and their number in registers;
//   trivial_log       carries the last `size` value vectors in a log.
//
// Both add weight[h] * mean of what is carried to the local output of the row's first segment.
#pragma once

namespace quire::test {

// Makes both kinds known to the configuration. May be called again.
void register_trivial_memories();

}  // namespace quire::test
