#include "autograd/functions/rotary.h"

namespace quire {

Variable rotary(Tape& tape, const Variable& x, ops::RotaryInputs settings) {
  settings.x = x.value();
  const Tensor y = Tensor::empty_like(x.value());
  ops::rotary(y, settings);
  settings.x = Tensor();  // backward needs the angles only
  return tape.result("rotary", y, {&x}, [dx = x.gradient(), settings](const Tensor& dout) {
    ops::RotaryInputs back = settings;
    back.x = dout;
    back.inverse = true;
    const Tensor term = Tensor::empty_like(dout);
    ops::rotary(term, back);
    dx->add(term);
  });
}

}  // namespace quire
