// Holds what the layers of a model have declared through their scopes, beside parameters and buffers.
#pragma once

#include <string>
#include <vector>

#include "layers/pass/attention_call.h"
#include "layers/pass/learner.h"
#include "layers/pass/loss_table.h"
#include "layers/state/state_layout.h"

namespace quire {

// A value that one layer leaves for later ones of the same forward pass.
struct ValueId {
  int index = -1;
};

struct ValueUse {
  ValueId id;
  bool leaves = false;  // else it reads
};

struct Declarations {
  StateLayout state;
  std::vector<Learner*> learners;  // in the order of layers; the layers own them
  LossTable losses;
  std::vector<AttentionCall> attention_calls;  // in the order of layers
  std::vector<std::string> values;             // names, by ValueId
  std::vector<ValueUse> value_uses;            // in the order of declaration
};

}  // namespace quire
