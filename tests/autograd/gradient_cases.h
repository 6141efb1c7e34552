// The table of differentiable operations for the numeric gradient check.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace quire::test {

struct GradientCase {
  std::string name;
  std::vector<Tensor> inputs;  // f64; every element of each is disturbed
  // Any output; one that is not f64 [1] is summed with random weights.
  std::function<Variable(Tape&, const std::vector<Variable>&)> function;
};

const std::vector<GradientCase>& gradient_cases();

}  // namespace quire::test
