#include "autograd/variable.h"

#include "core/check.h"
#include "kernels/elementwise.h"

namespace quire {

std::shared_ptr<Gradient> Gradient::into(const Tensor& arena) {
  auto gradient = std::make_shared<Gradient>(arena.shape(), arena.dtype(), arena.device());
  gradient->value_ = arena;
  gradient->in_arena_ = true;
  return gradient;
}

Tensor Gradient::take() {
  QUIRE_CHECK(!in_arena_, "gradient: a parameter's gradient stays in its arena");
  return std::exchange(value_, Tensor());
}

void Gradient::add(const Tensor& term) {
  QUIRE_CHECK(term.numel() == shape_.numel() && term.dtype() == dtype_, "gradient: {} for a value of shape {}",
              term.shape().to_string(), shape_.to_string());
  const Tensor shaped = term.reshape(shape_);
  if (!value_.defined()) {
    value_ = shaped;
  } else if (in_arena_ || value_.use_count() == 1) {
    ops::add(value_, value_, shaped, 1, 1);
  } else {
    const Tensor sum = Tensor::empty(shape_, dtype_, device_);
    ops::add(sum, value_, shaped, 1, 1);
    value_ = sum;
  }
}

Gradient::Target Gradient::target() {
  if (!value_.defined()) {
    value_ = Tensor::empty(shape_, dtype_, device_);
    return {value_, false};
  }
  if (!in_arena_ && value_.use_count() > 1) {
    const Tensor own = Tensor::empty(shape_, dtype_, device_);
    own.copy_from(value_);
    value_ = own;
  }
  return {value_, true};
}

Variable Variable::leaf(Tensor value) {
  auto gradient = std::make_shared<Gradient>(value.shape(), value.dtype(), value.device());
  return {std::move(value), std::move(gradient)};
}

}  // namespace quire
