// A stack like the plain one that also inserts tokens into documents: stack.kind inserting.
#pragma once

#include "core/insertion.h"
#include "layers/mechanism/mechanism.h"

namespace quire::test {

Mechanism inserting_stack();
// Registers it and gives the setting of a model that inserts like this, or one without effect for none.
std::string inserting(const Insertion& insertion);

}  // namespace quire::test
