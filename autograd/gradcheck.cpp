#include "autograd/gradcheck.h"

#include <cmath>

#include "core/check.h"

namespace quire {

GradcheckResult gradcheck(const std::function<Variable(Tape&, const std::vector<Variable>&)>& function,
                          const std::vector<Tensor>& inputs, double step, int64_t stride) {
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) leaves.push_back(Variable::leaf(input));
  {
    Tape tape;
    const Variable loss = function(tape, leaves);
    tape.backward({{loss, 1.0}});
  }
  const auto value = [&] {
    Tape tape(false);
    return function(tape, leaves).value().data<double>()[0];
  };
  GradcheckResult result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    double* x = inputs[i].data<double>();
    const bool reached = leaves[i].gradient()->has_value();
    for (int64_t at = 0; at < inputs[i].numel(); at += stride) {
      const double kept = x[at];
      x[at] = kept + step;
      const double above = value();
      x[at] = kept - step;
      const double below = value();
      x[at] = kept;
      const double numeric = (above - below) / (2 * step);
      const double analytic = reached ? leaves[i].gradient()->value().data<double>()[at] : 0.0;
      const double error = std::abs(analytic - numeric) / std::max({1.0, std::abs(analytic), std::abs(numeric)});
      if (!(error <= result.worst)) {  // also catches NaN
        result.worst = error;
        result.where = fmt::format("input {}, element {}: analytic {}, numeric {}", i, at, analytic, numeric);
      }
    }
  }
  return result;
}

}  // namespace quire
