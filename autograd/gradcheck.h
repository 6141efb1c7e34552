// Numeric gradient in f64: central differences against the tape.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace quire {

struct GradcheckResult {
  double worst = 0;   // largest |analytic - numeric| / max(1, |analytic|, |numeric|)
  std::string where;  // input and element of the worst value
};

// `function` computes a scalar (f64 [1]) from leaves with the values of inputs (all f64, on the CPU). Every element of
// every input is disturbed by `step`; with `stride` above 1, only every stride-th element.
GradcheckResult gradcheck(const std::function<Variable(Tape&, const std::vector<Variable>&)>& function,
                          const std::vector<Tensor>& inputs, double step = 1e-5, int64_t stride = 1);

}  // namespace quire
