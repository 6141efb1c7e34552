// State to and from checkpoints. Names end in .value and .empty for a register; in .head, .length, .written and, where
// they are kept, .ages for a group of logs; in .ring for a log. The first axis counts rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "layers/state/state_rows.h"

namespace quire {

std::vector<NamedTensor> save_state(const StateRows& state);
// get(name) returns a tensor of the shape that save_state() gave. Throws Error(checkpoint) when it does not fit.
void load_state(StateRows& state, const std::function<Tensor(const std::string&)>& get);

}  // namespace quire
