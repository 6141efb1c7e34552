#include "autograd/functions/basic.h"

#include "autograd/functions/terms.h"
#include "core/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/gemm.h"

namespace quire {

namespace {

Tensor as_matrix(const Tensor& tensor) {
  const int64_t width = tensor.dim(-1);
  return tensor.reshape({width == 0 ? 0 : tensor.numel() / width, width});
}

}  // namespace

Variable scale(Tape& tape, const Variable& x, double factor) {
  const Tensor scaled = Tensor::empty_like(x.value());
  ops::scale(scaled, x.value(), factor);
  return tape.result("scale", scaled, {&x}, [dx = x.gradient(), factor](const Tensor& dout) {
    const Tensor term = Tensor::empty_like(dout);
    ops::scale(term, dout, factor);
    dx->add(term);
  });
}

Variable add_scaled(Tape& tape, const Variable& x, const Tensor& y, const Variable& factor) {
  QUIRE_CHECK(x.shape() == y.shape() && factor.value().numel() == 1, "add_scaled: {} and {} times {}",
              x.shape().to_string(), y.shape().to_string(), factor.shape().to_string());
  const Tensor sum = Tensor::empty_like(y);
  ops::scale_by(sum, y, as_type(factor.value(), DType::f64));
  ops::add(sum, sum, x.value(), 1, 1);
  return tape.result("add_scaled", sum, {&x, &factor}, [dx = x.gradient(), y, factor](const Tensor& dout) {
    if (dx) dx->add(dout);
    if (!factor.needs_gradient()) return;
    const DType wide = factor.value().dtype();
    const Tensor product = Tensor::empty(y.shape(), wide, y.device());
    ops::multiply(product, as_type(dout, wide), as_type(y, wide));
    const Tensor total = Tensor::empty({1}, DType::f64, y.device());
    ops::sum_all(total, product);
    factor.gradient()->add(as_type(total, wide));
  });
}

Variable add_bias(Tape& tape, const Variable& x, const Variable& bias) {
  const Tensor y = Tensor::empty_like(x.value());
  const Shape matrix{y.numel() / bias.dim(0), bias.dim(0)};
  ops::add_bias(y.reshape(matrix), x.value().reshape(matrix), bias.value());
  return tape.result("add_bias", y, {&x, &bias}, [dx = x.gradient(), db = bias.gradient(), matrix](const Tensor& dout) {
    if (dx) dx->add(dout);
    if (!db) return;
    const auto [to, accumulate] = db->target();
    ops::sum_rows(to, dout.reshape(matrix), accumulate);
  });
}

namespace {

// Returns y [.., N], not yet computed.
Tensor linear_result(const Variable& x, const Variable& weight) {
  QUIRE_CHECK(weight.value().rank() == 2 && x.dim(-1) == weight.dim(1), "linear: x {} and weight {}",
              x.shape().to_string(), weight.shape().to_string());
  Shape shape = x.shape();
  shape[-1] = weight.dim(0);
  return Tensor::empty(shape, x.value().dtype(), x.value().device());
}

// The operands of the gradients of x W^T + b, and where the gradients go.
struct LinearGradients {
  Tensor in, w;
  std::shared_ptr<Gradient> dx, dw, db;

  LinearGradients(const Variable& x, const Variable& weight, const Variable& bias)
      : in(x.value()), w(weight.value()), dx(x.gradient()), dw(weight.gradient()), db(bias.gradient()) {}

  void add(const Tensor& dout) const {
    const Tensor dy = as_matrix(dout);
    if (dx) {
      const auto [to, accumulate] = dx->target();
      ops::gemm(as_matrix(to), dy, w, {.accumulate = accumulate});
    }
    const Gradient::Target of_bias = db ? db->target() : Gradient::Target{};
    if (dw) {
      const auto [to, accumulate] = dw->target();
      ops::gemm(
          to, dy, as_matrix(in),
          {.transpose_a = true, .accumulate = accumulate, .sums = of_bias.tensor, .add_sums = of_bias.accumulate});
    } else if (db) {
      ops::sum_rows(of_bias.tensor, dy, of_bias.accumulate);
    }
  }
};

}  // namespace

namespace {

// Returns x W^T + b, added to the residual if there is one.
Tensor linear_value(const Variable& x, const Variable& weight, const Variable& bias, const Variable& residual) {
  const Tensor y = linear_result(x, weight);
  ops::gemm(as_matrix(y), as_matrix(x.value()), weight.value(),
            {.transpose_b = true,
             .bias = bias.value(),
             .residual = residual.defined() ? as_matrix(residual.value()) : Tensor()});
  return y;
}

}  // namespace

Variable linear(Tape& tape, const Variable& x, const Variable& weight, const Variable& bias, const Variable& residual) {
  return tape.result(
      "linear", linear_value(x, weight, bias, residual), {&x, &weight, &bias, &residual},
      [gradients = LinearGradients(x, weight, bias), dresidual = residual.gradient()](const Tensor& dout) {
        if (dresidual) dresidual->add(dout);
        gradients.add(dout);
      });
}

namespace {

struct Activated {
  Tensor y;
  Tensor at;  // the argument of the derivative, if the derivative will be needed
};

// Returns activation(x W^T + b). The derivative of ReLU follows from its result.
Activated activated(const Variable& x, const LinearWeights& weights, ops::Activation kind, bool keeps) {
  const Tensor y = linear_result(x, weights.weight);
  ops::GemmOptions options{.transpose_b = true, .bias = weights.bias.value(), .activation = kind};
  Tensor at = keeps ? y : Tensor();
  if (keeps && kind != ops::Activation::relu) {
    at = Tensor::empty_like(y);
    options.pre = as_matrix(at);
  }
  ops::gemm(as_matrix(y), as_matrix(x.value()), weights.weight.value(), options);
  return {y, at};
}

}  // namespace

Variable linear_activation(Tape& tape, const Variable& x, const Variable& weight, const Variable& bias,
                           ops::Activation kind) {
  const auto [y, at] = activated(x, {weight, bias}, kind, tape.wants_gradient({&x, &weight, &bias}));
  return tape.result("linear_activation", y, {&x, &weight, &bias},
                     [gradients = LinearGradients(x, weight, bias), before = at, kind](const Tensor& dout) {
                       const Tensor dpre = Tensor::empty_like(dout);
                       ops::activation_backward(dpre, dout, before, kind);
                       gradients.add(dpre);
                     });
}

Variable feed_forward(Tape& tape, const Variable& x, const LinearWeights& up, ops::Activation kind,
                      const LinearWeights& down, const Variable& residual) {
  const bool differs = tape.wants_gradient({&x, &up.weight, &up.bias});
  const auto [y, at] = activated(x, up, kind, differs);
  const Variable hidden = Variable::constant(y);
  return tape.result(
      "feed_forward", linear_value(hidden, down.weight, down.bias, residual),
      {&x, &up.weight, &up.bias, &down.weight, &down.bias, &residual},
      [of_up = LinearGradients(x, up.weight, up.bias), of_down = LinearGradients(hidden, down.weight, down.bias),
       dresidual = residual.gradient(), before = at, kind](const Tensor& dout) {
        if (dresidual) dresidual->add(dout);
        of_down.add(dout);
        if (!before.defined()) return;
        const Tensor dpre = Tensor::empty_like(before);
        ops::gemm(as_matrix(dpre), as_matrix(dout), of_down.w, {.gradient_of = kind, .at = as_matrix(before)});
        of_up.add(dpre);
      });
}

Variable weighted_sum(Tape& tape, const Variable& x, const Tensor& weights) {
  const Tensor product = Tensor::empty_like(x.value());
  ops::multiply(product, x.value(), weights);
  const Tensor total = Tensor::empty({1}, DType::f64, x.value().device());
  ops::sum_all(total, product);
  return tape.result("weighted_sum", total, {&x}, [dx = x.gradient(), weights](const Tensor& dout) {
    const Tensor term = Tensor::empty_like(weights);
    ops::scale_by(term, weights, dout);
    dx->add(term);
  });
}

Variable with_loss(Tape& tape, const Variable& x, const Variable& loss, double weight) {
  return tape.result("with_loss", x.value(), {&x, &loss}, [x, loss, weight](const Tensor& dout) {
    if (x.needs_gradient()) x.gradient()->add(dout);
    if (!loss.needs_gradient()) return;
    loss.gradient()->add(Tensor::from(std::vector<double>{weight}, {1}, dout.device()));
  });
}

Variable with_gradient_to(Tape& tape, const Tensor& value, const Variable& x) {
  QUIRE_CHECK(value.shape() == x.shape() && value.dtype() == x.value().dtype(),
              "with_gradient_to: {} {} with the gradient of {} {}", name_of(value.dtype()), value.shape().to_string(),
              name_of(x.value().dtype()), x.shape().to_string());
  return tape.result("with_gradient_to", value, {&x}, [dx = x.gradient()](const Tensor& dout) { dx->add(dout); });
}

Variable scale_heads(Tape& tape, const Variable& x, const Variable& s) {
  const Tensor y = Tensor::empty_like(x.value());
  ops::scale_heads(y, x.value(), s.value());
  return tape.result(
      "scale_heads", y, {&x, &s},
      [in = x.value(), factor = s.value(), dx = x.gradient(), ds = s.gradient()](const Tensor& dout) {
        const Tensor term = Tensor::empty_like(dout);
        const Gradient::Target to = ds ? ds->target() : Gradient::Target{Tensor::empty_like(factor), false};
        ops::scale_heads_backward(term, to.tensor, dout, in, factor, to.accumulate);
        if (dx) dx->add(term);
      });
}

Variable dropout(Tape& tape, const Variable& x, const Variable& residual, const ops::DropoutKey& key) {
  if (key.probability == 0) return residual.defined() ? add(tape, residual, x) : x;
  const Tensor y = Tensor::empty_like(x.value());
  ops::dropout(y, x.value(), residual.value(), key);
  return tape.result("dropout", y, {&x, &residual},
                     [dx = x.gradient(), dresidual = residual.gradient(), key](const Tensor& dout) {
                       if (dresidual) dresidual->add(dout);
                       if (!dx) return;
                       const Tensor term = Tensor::empty_like(dout);
                       ops::dropout(term, dout, Tensor(), key);
                       dx->add(term);
                     });
}

}  // namespace quire
