#include "kernels/checks.h"

#include "core/check.h"

namespace quire {

void require_alike(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor& first = **tensors.begin();
  for (const Tensor* tensor : tensors) {
    QUIRE_CHECK(tensor->numel() == first.numel() && tensor->is_contiguous() && tensor->dtype() == first.dtype(),
                "{}: {} {} beside {} {}; all must be contiguous and alike", op, name_of(tensor->dtype()),
                tensor->shape().to_string(), name_of(first.dtype()), first.shape().to_string());
  }
}

int64_t check_gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o) {
  const int rank = c.rank();
  QUIRE_CHECK((rank == 2 || rank == 3) && a.rank() == rank && b.rank() == rank, "gemm: ranks {}, {}, {}", rank,
              a.rank(), b.rank());
  QUIRE_CHECK(a.stride(-1) == 1 && b.stride(-1) == 1 && c.stride(-1) == 1, "gemm: inner strides must be 1");
  const int64_t k = o.transpose_a ? a.dim(-2) : a.dim(-1);
  QUIRE_CHECK((o.transpose_a ? a.dim(-1) : a.dim(-2)) == c.dim(-2) &&
                  (o.transpose_b ? b.dim(-2) : b.dim(-1)) == c.dim(-1) && (o.transpose_b ? b.dim(-1) : b.dim(-2)) == k,
              "gemm: {} from {}{} and {}{}", c.shape().to_string(), a.shape().to_string(),
              o.transpose_a ? " transposed" : "", b.shape().to_string(), o.transpose_b ? " transposed" : "");
  QUIRE_CHECK(rank == 2 || (a.dim(0) == c.dim(0) && b.dim(0) == c.dim(0) && !o.bias.defined() &&
                            !o.residual.defined() && !o.activation && !o.gradient_of),
              "gemm: {} products from {} and {}; nothing but accumulation goes with several", c.dim(0), a.dim(0),
              b.dim(0));
  QUIRE_CHECK(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == wide_type(a.dtype())),
              "gemm: {} from {} and {}", name_of(c.dtype()), name_of(a.dtype()), name_of(b.dtype()));
  QUIRE_CHECK(!o.bias.defined() || (!o.accumulate && o.bias.is_contiguous() && o.bias.numel() == c.dim(-1) &&
                                    o.bias.dtype() == wide_type(a.dtype())),
              "gemm: bias {} {} for {}{}", name_of(o.bias.dtype()), o.bias.shape().to_string(), c.shape().to_string(),
              o.accumulate ? " that accumulates" : "");
  QUIRE_CHECK(!o.activation || (!o.accumulate && c.is_contiguous()),
              "gemm: an activation needs a contiguous result that does not accumulate");
  const auto is_like_c = [&c](const Tensor& x) {
    return x.is_contiguous() && x.shape() == c.shape() && x.dtype() == c.dtype();
  };
  QUIRE_CHECK(!o.pre.defined() || (o.activation && is_like_c(o.pre)), "gemm: pre is {} for {}",
              o.pre.shape().to_string(), c.shape().to_string());
  QUIRE_CHECK(!o.residual.defined() || (!o.accumulate && !o.activation && c.is_contiguous() && is_like_c(o.residual)),
              "gemm: residual {} {} for {} {}; both are contiguous, without accumulation and activation",
              name_of(o.residual.dtype()), o.residual.shape().to_string(), name_of(c.dtype()), c.shape().to_string());
  QUIRE_CHECK(!o.gradient_of ||
                  (!o.accumulate && !o.bias.defined() && !o.residual.defined() && !o.activation && c.is_contiguous()),
              "gemm: an activation's gradient needs a contiguous result to which nothing is added");
  QUIRE_CHECK(o.at.defined() == o.gradient_of.has_value() && (!o.at.defined() || is_like_c(o.at)),
              "gemm: an activation's gradient at {} for {}", o.at.shape().to_string(), c.shape().to_string());
  QUIRE_CHECK(!o.sums.defined() || (rank == 2 && o.transpose_a && a.is_contiguous() && !o.bias.defined() &&
                                    !o.residual.defined() && !o.activation && !o.gradient_of),
              "gemm: sums of rows go with a contiguous matrix that is transposed, and with accumulation alone");
  QUIRE_CHECK(!o.sums.defined() ||
                  (o.sums.is_contiguous() && o.sums.numel() == c.dim(0) && o.sums.dtype() == wide_type(a.dtype())),
              "gemm: sums {} {} of {} {} transposed", name_of(o.sums.dtype()), o.sums.shape().to_string(),
              name_of(a.dtype()), a.shape().to_string());
  return k;
}

void check_copy(const Tensor& out, const Tensor& in) {
  QUIRE_CHECK(out.shape() == in.shape() && out.dtype() == in.dtype(), "copy: {} from {}", out.shape().to_string(),
              in.shape().to_string());
}

void check_convert(const Tensor& out, const Tensor& in) {
  QUIRE_CHECK(out.numel() == in.numel() && out.is_contiguous() && in.is_contiguous(), "convert: {} from {}",
              out.shape().to_string(), in.shape().to_string());
}

void check_add_bias(const Tensor& out, const Tensor& in, const Tensor& bias) {
  require_alike("add_bias", {&out, &in});
  const int64_t width = bias.numel();
  QUIRE_CHECK(width > 0 && in.numel() % width == 0, "add_bias: {} values on rows of {}", width, in.shape().to_string());
}

void check_scale_by(const Tensor& out, const Tensor& in, const Tensor& factor) {
  require_alike("scale_by", {&out, &in});
  QUIRE_CHECK(factor.numel() == 1, "scale_by: {} factors", factor.numel());
}

void check_dropout(const Tensor& out, const Tensor& in, const Tensor& residual) {
  require_alike("dropout", {&out, &in});
  if (residual.defined()) require_alike("dropout", {&out, &residual});
  QUIRE_CHECK(in.rank() == 3, "dropout: {} is not [R, T, N]", in.shape().to_string());
}

void check_sum_rows(const Tensor& out, const Tensor& in) {
  const int64_t width = out.numel();
  const int64_t rows = width == 0 ? 0 : in.numel() / width;
  QUIRE_CHECK(in.is_contiguous() && out.is_contiguous() && rows * width == in.numel(), "sum_rows: {} into {}",
              in.shape().to_string(), out.shape().to_string());
}

void check_scale_heads(const Tensor& out, const Tensor& x, const Tensor& s) {
  require_alike("scale_heads", {&out, &x});
  QUIRE_CHECK(x.dim(-2) == s.numel(), "scale_heads: {} scales for {}", s.numel(), x.shape().to_string());
}

void check_scale_heads_backward(const Tensor& dx, const Tensor& ds, const Tensor& dy, const Tensor& x,
                                const Tensor& s) {
  require_alike("scale_heads_backward", {&dx, &dy, &x});
  require_alike("scale_heads_backward", {&ds, &s});
  QUIRE_CHECK(x.dim(-2) == s.numel(), "scale_heads_backward: {} scales for {}", s.numel(), x.shape().to_string());
}

void check_l2_norm(const char* op, const Tensor& out, const Tensor& x, const Tensor& rnorm) {
  const int64_t width = x.dim(-1);
  QUIRE_CHECK(x.is_contiguous() && width > 0, "{}: {} must be contiguous with a last axis", op, x.shape().to_string());
  QUIRE_CHECK(rnorm.numel() == x.numel() / width, "{}: {} row values for {}", op, rnorm.numel(), x.shape().to_string());
  require_alike(op, {&out, &x});
}

void check_norm(const char* op, const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& per_row) {
  check_l2_norm(op, y, x, per_row);
  QUIRE_CHECK(weight.numel() == x.dim(-1) && weight.is_contiguous(), "{}: weight has {} values but x is {}", op,
              weight.numel(), x.shape().to_string());
}

void check_norm_backward(const char* op, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& per_row) {
  check_norm(op, dx, x, weight, per_row);
  require_alike(op, {&dy, &x});
  require_alike(op, {&dweight, &weight});
}

void check_embedding(const Tensor& out, const Tensor& table, const Tensor& ids) {
  QUIRE_CHECK(out.numel() == ids.numel() * table.dim(1) && out.is_contiguous() && table.is_contiguous(),
              "embedding: {} from table {} and {} ids", out.shape().to_string(), table.shape().to_string(),
              ids.numel());
}

void check_embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& ids) {
  QUIRE_CHECK(dout.numel() == ids.numel() * dtable.dim(1) && dout.is_contiguous() && dtable.is_contiguous(),
              "embedding_backward: {} for {} ids into {}", dout.shape().to_string(), ids.numel(),
              dtable.shape().to_string());
}

void check_cross_entropy(const Tensor& nll, const Tensor& dlogits, const Tensor& logits, const Tensor& targets,
                         const Tensor& mask, const Tensor& factor, const ops::CrossEntropyTerms& terms) {
  const int64_t rows = logits.dim(0);
  QUIRE_CHECK(logits.stride(-1) == 1 && targets.numel() == rows && mask.numel() == rows && nll.numel() == rows,
              "cross_entropy: {} targets for logits {}", targets.numel(), logits.shape().to_string());
  for (const Tensor& row : {terms.log_sum, terms.uniform}) {
    QUIRE_CHECK(!row.defined() || (row.numel() == rows && row.dtype() == nll.dtype() && row.is_contiguous()),
                "cross_entropy: a term {} {} of logits {}", name_of(row.dtype()), row.shape().to_string(),
                logits.shape().to_string());
  }
  QUIRE_CHECK(terms.smoothing == 0 || terms.uniform.defined(), "cross_entropy: smoothing {} without its losses",
              terms.smoothing);
  if (!dlogits.defined()) return;
  QUIRE_CHECK(dlogits.shape() == logits.shape() && dlogits.stride(-1) == 1 && factor.numel() == 1,
              "cross_entropy: gradients {} of logits {}", dlogits.shape().to_string(), logits.shape().to_string());
}

void check_sinusoid(const Tensor& out) {
  QUIRE_CHECK(out.dim(1) % 2 == 0, "sinusoid: width {} is odd; sines and cosines need an even one", out.dim(1));
  QUIRE_CHECK(out.is_contiguous(), "sinusoid: {} is not contiguous", out.shape().to_string());
}

void check_sinusoid_at(const Tensor& out, const Tensor& position) {
  check_sinusoid(out);
  QUIRE_CHECK(position.dtype() == DType::i32 && position.numel() == out.dim(0), "sinusoid_at: {} positions for {} rows",
              position.numel(), out.dim(0));
}

void check_gather_columns(const char* op, const Tensor& table, const Tensor& entries, const Tensor& index) {
  QUIRE_CHECK(entries.numel() == table.dim(0) * index.numel() && entries.dtype() == table.dtype() &&
                  entries.is_contiguous() && table.is_contiguous(),
              "{}: {} {} and table {} {} for {} entries", op, name_of(entries.dtype()), entries.shape().to_string(),
              name_of(table.dtype()), table.shape().to_string(), index.numel());
}

void check_rotary_table(const Tensor& table, const Tensor& frequency) {
  QUIRE_CHECK(table.rank() == 3 && table.dim(1) == 2 && table.is_contiguous(), "rotary_table: {} is not [N, 2, P]",
              table.shape().to_string());
  QUIRE_CHECK(frequency.shape() == Shape{table.dim(2)} && frequency.dtype() == DType::f64 && frequency.is_contiguous(),
              "rotary_table: frequencies are {} {}, not f64 [{}]", name_of(frequency.dtype()),
              frequency.shape().to_string(), table.dim(2));
}

void check_rotary(const Tensor& out, const ops::RotaryInputs& in) {
  const int64_t rows = in.x.dim(0);
  const int64_t tokens = in.x.dim(1);
  const int64_t pairs = in.table.dim(2);
  QUIRE_CHECK(out.shape() == in.x.shape() && out.is_contiguous() && in.x.is_contiguous() &&
                  out.dtype() == in.x.dtype() && in.table.dtype() == wide_type(in.x.dtype()),
              "rotary: {} from {} {} and a table of {}; out and x must be contiguous and alike",
              out.shape().to_string(), name_of(in.x.dtype()), in.x.shape().to_string(), name_of(in.table.dtype()));
  QUIRE_CHECK(2 * pairs <= in.x.dim(3), "rotary: {} features are rotated but a head has {}", 2 * pairs, in.x.dim(3));
  const bool ring = in.head.defined();
  QUIRE_CHECK(!ring || in.head.numel() == rows, "rotary: {} heads of rings for {} rows", in.head.numel(), rows);
  const bool given = in.position.defined();
  QUIRE_CHECK(!given || (!ring && in.position.shape() == Shape{rows, tokens} && in.position.dtype() == DType::i32 &&
                         in.position.is_contiguous() && in.origin >= 0 && in.origin <= in.table.dim(0)),
              "rotary: positions {} for {} rows of {} tokens",
              in.position.defined() ? in.position.shape().to_string() : "", rows, tokens);
  QUIRE_CHECK(given || (ring ? in.origin >= tokens && in.origin <= in.table.dim(0)
                             : in.origin >= 0 && in.origin + tokens <= in.table.dim(0)),
              "rotary: a table of {} with position 0 at {} is too short for {} {}", in.table.dim(0), in.origin, tokens,
              ring ? "slots" : "tokens");
}

void check_ring_append(const Tensor& ring, const Tensor& values) {
  QUIRE_CHECK(ring.dtype() == values.dtype() && values.dim(0) == ring.dim(0) && ring.is_contiguous() &&
                  values.is_contiguous() && values.numel() * ring.dim(1) == ring.numel() * values.dim(1),
              "ring_append: values {} into ring {}", values.shape().to_string(), ring.shape().to_string());
}

void check_ring_gather(const Tensor& out, const Tensor& ring) {
  QUIRE_CHECK(ring.dtype() == out.dtype() && out.dim(0) == ring.dim(0) && out.dim(1) <= ring.dim(1) &&
                  ring.is_contiguous() && out.is_contiguous() && out.numel() * ring.dim(1) == ring.numel() * out.dim(1),
              "ring_gather: {} out of ring {}", out.shape().to_string(), ring.shape().to_string());
}

namespace {

void check_control(const char* op, const Tensor& control) {
  QUIRE_CHECK(control.numel() == 2 && control.dtype() == DType::f64 && control.is_contiguous(),
              "{}: control is {} {}, not the gradient's scale and whether to apply", op, name_of(control.dtype()),
              control.shape().to_string());
}

}  // namespace

void check_adamw(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient, const Tensor& control) {
  QUIRE_CHECK(w.numel() == gradient.numel() && m.numel() == w.numel() && v.numel() == w.numel(),
              "adamw: {} weights, {} gradients", w.numel(), gradient.numel());
  check_control("adamw", control);
}

void check_adafactor(const Tensor& w, const Tensor& row, const Tensor& column, const Tensor& mean,
                     const Tensor& gradient, const Tensor& control) {
  const int64_t n = w.dim(0);
  const int64_t m = w.dim(1);
  const bool factored = column.defined();
  QUIRE_CHECK(gradient.shape() == w.shape() && (!mean.defined() || mean.shape() == w.shape()) &&
                  row.numel() == (factored ? n : n * m) && (!factored || column.numel() == m),
              "adafactor: moments of {} and {} for weights {}", row.numel(), factored ? column.numel() : 0,
              w.shape().to_string());
  check_control("adafactor", control);
}

void check_muon_direction(const Tensor& direction, const Tensor& momentum, const Tensor& gradient,
                          const Tensor& control) {
  QUIRE_CHECK(momentum.numel() == gradient.numel() && direction.numel() == gradient.numel() &&
                  momentum.is_contiguous() && direction.is_contiguous() && gradient.is_contiguous(),
              "muon_direction: momentum {} and direction {} for gradients {}", momentum.shape().to_string(),
              direction.shape().to_string(), gradient.shape().to_string());
  check_control("muon_direction", control);
}

void check_muon_update(const Tensor& w, const Tensor& direction, const Tensor& control) {
  QUIRE_CHECK(w.numel() == direction.numel() && w.is_contiguous() && direction.is_contiguous(),
              "muon_update: direction {} of weights {}", direction.shape().to_string(), w.shape().to_string());
  check_control("muon_update", control);
}

void check_divide_by_norm(const Tensor& x, const Tensor& squared_norm) {
  QUIRE_CHECK(x.is_contiguous() && squared_norm.numel() == 1 && squared_norm.dtype() == DType::f64,
              "divide_by_norm: {} by {} {}", x.shape().to_string(), name_of(squared_norm.dtype()),
              squared_norm.shape().to_string());
}

void check_moving_average(const Tensor& average, const Tensor& w, const Tensor& control) {
  QUIRE_CHECK(average.numel() == w.numel() && average.dtype() == w.dtype(), "moving_average: {} {} beside {} {}",
              name_of(average.dtype()), average.numel(), name_of(w.dtype()), w.numel());
  check_control("moving_average", control);
}

void check_step_outcome(const Tensor& outcome, const Tensor& loss_sum, const Tensor& squared_norm) {
  QUIRE_CHECK(outcome.numel() == 6 && outcome.is_contiguous() && loss_sum.numel() == 1 && squared_norm.numel() == 1,
              "step_outcome: {} from {} and {}", outcome.shape().to_string(), loss_sum.shape().to_string(),
              squared_norm.shape().to_string());
}

}  // namespace quire
