#include "autograd/functions/rows.h"

#include "autograd/functions/terms.h"
#include "core/check.h"
#include "kernels/choice.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"

namespace quire {

namespace {

int64_t product(const Shape& shape, int axes) {
  int64_t count = 1;
  for (int i = 0; i < axes; ++i) count *= shape[i];
  return count;
}

// Returns [.., M, N] with other sizes of the last two axes.
Shape with_last(const Shape& shape, int64_t rows, int64_t columns) {
  Shape other = shape;
  other[-2] = rows;
  other[-1] = columns;
  return other;
}

// Multiplies each matrix of a batch; operands have the same leading axes.
void multiply(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options) {
  const auto as_batch = [](const Tensor& x) {
    return x.reshape({product(x.shape(), x.rank() - 2), x.dim(-2), x.dim(-1)});
  };
  ops::gemm(as_batch(c), as_batch(a), as_batch(b), options);
}

// Returns whether y [.., M, K] W with one matrix for all is a single product.
bool is_one_product(const Variable& a, const Variable& b, const MatmulOptions& options) {
  return b.shape().rank() == 2 && a.shape().rank() > 2 && !options.transpose_a;
}

}  // namespace

Variable matmul(Tape& tape, const Variable& a, const Variable& b, const MatmulOptions& o) {
  QUIRE_CHECK(a.shape().rank() >= 2 && b.shape().rank() >= 2, "matmul: {} and {} are not matrices",
              a.shape().to_string(), b.shape().to_string());
  const int64_t m = o.transpose_a ? a.dim(-1) : a.dim(-2);
  const int64_t k = o.transpose_a ? a.dim(-2) : a.dim(-1);
  const int64_t n = o.transpose_b ? b.dim(-2) : b.dim(-1);
  QUIRE_CHECK(k == (o.transpose_b ? b.dim(-1) : b.dim(-2)), "matmul: {}{} and {}{}", a.shape().to_string(),
              o.transpose_a ? " transposed" : "", b.shape().to_string(), o.transpose_b ? " transposed" : "");
  if (is_one_product(a, b, o)) {
    const Shape flat{product(a.shape(), a.shape().rank() - 1), k};
    Tensor y = Tensor::empty({flat[0], n}, a.value().dtype(), a.value().device());
    ops::gemm(y, a.value().reshape(flat), b.value(), {.transpose_b = o.transpose_b});
    return tape.result("matmul", y.reshape(with_last(a.shape(), m, n)), {&a, &b}, [a, b, o, flat, n](const Tensor& d) {
      const Tensor dout = d.reshape({flat[0], n});
      if (a.needs_gradient()) {
        const Tensor da = Tensor::empty(flat, dout.dtype(), dout.device());
        ops::gemm(da, dout, b.value(), {.transpose_b = !o.transpose_b});
        add_to_gradient(a, da.reshape(a.shape()));
      }
      if (!b.needs_gradient()) return;
      const auto [to, accumulate] = b.gradient()->target();
      const Tensor x = a.value().reshape(flat);
      ops::gemm(to, o.transpose_b ? dout : x, o.transpose_b ? x : dout,
                {.transpose_a = true, .accumulate = accumulate});
    });
  }
  // Computes the common leading axes and broadcasts both operands to them. Repeated values are copied.
  const Shape front = broadcast_shape("matmul", with_last(a.shape(), 1, 1), with_last(b.shape(), 1, 1));
  const Tensor left = dense(a.value().broadcast(with_last(front, a.dim(-2), a.dim(-1))));
  const Tensor right = dense(b.value().broadcast(with_last(front, b.dim(-2), b.dim(-1))));
  const Tensor y = Tensor::empty(with_last(front, m, n), a.value().dtype(), a.value().device());
  multiply(y, left, right, {.transpose_a = o.transpose_a, .transpose_b = o.transpose_b});
  return tape.result("matmul", y, {&a, &b}, [a, b, left, right, o](const Tensor& dout) {
    if (a.needs_gradient()) {
      const Tensor da = Tensor::empty_like(left);
      if (o.transpose_a) {
        multiply(da, right, dout, {.transpose_a = o.transpose_b, .transpose_b = true});
      } else {
        multiply(da, dout, right, {.transpose_b = !o.transpose_b});
      }
      add_to_gradient(a, da);
    }
    if (b.needs_gradient()) {
      const Tensor db = Tensor::empty_like(right);
      if (o.transpose_b) {
        multiply(db, dout, left, {.transpose_a = true, .transpose_b = o.transpose_a});
      } else {
        multiply(db, left, dout, {.transpose_a = !o.transpose_a});
      }
      add_to_gradient(b, db);
    }
  });
}

namespace {

// Returns indices into the tables of a batch as indices [count] into the rows of all tables together.
Tensor rows_of(const char* op, const Shape& tables, const Tensor& index) {
  const int axes = tables.rank() - 2;
  if (axes == 0) return index.reshape({index.numel()});
  bool fits = index.rank() == axes + 1;
  for (int i = 0; fits && i < axes; ++i) fits = index.dim(i) == tables[i];
  QUIRE_CHECK(fits, "{}: index {} for tables {}", op, index.shape().to_string(), tables.to_string());
  const Tensor rows = Tensor::empty({product(tables, axes), index.dim(-1)}, DType::i32, index.device());
  ops::rows_of_tables(rows, index.reshape(rows.shape()), tables[-2]);
  return rows.reshape({rows.numel()});
}

Tensor as_table(const Tensor& x) {
  return x.reshape({x.dim(-1) == 0 ? 0 : x.numel() / x.dim(-1), x.dim(-1)});
}

// Returns sums of rows, computed wide and then converted to `dtype`.
Tensor scattered(const Shape& shape, const Tensor& x, const Tensor& rows, DType dtype) {
  const Tensor sums = Tensor::zeros(shape, wide_type(x.dtype()), x.device());
  ops::embedding_backward(as_table(sums), as_table(x), rows, 1);
  return as_type(sums, dtype);
}

Tensor gathered(const Shape& shape, const Tensor& table, const Tensor& rows) {
  const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  ops::embedding(as_table(y), as_table(table), rows, 1);
  return y;
}

}  // namespace

Variable gather_rows(Tape& tape, const Variable& table, const Tensor& index) {
  QUIRE_CHECK(table.shape().rank() >= 2, "gather_rows: {} is no table", table.shape().to_string());
  const Tensor rows = rows_of("gather_rows", table.shape(), index);
  std::vector<int64_t> sizes(index.shape().begin(), index.shape().end());
  sizes.push_back(table.dim(-1));
  const Tensor y = gathered(Shape(std::span<const int64_t>(sizes)), table.value(), rows);
  return tape.result("gather_rows", y, {&table}, [table, rows](const Tensor& dout) {
    table.gradient()->add(scattered(table.shape(), dout, rows, table.gradient()->dtype()));
  });
}

Variable scatter_rows(Tape& tape, const Variable& x, const Tensor& index, int64_t rows) {
  QUIRE_CHECK(x.shape().rank() >= 2, "scatter_rows: {} has no rows", x.shape().to_string());
  const Shape shape = with_last(x.shape(), rows, x.dim(-1));
  QUIRE_CHECK(index.numel() * x.dim(-1) == x.shape().numel(), "scatter_rows: index {} for {}",
              index.shape().to_string(), x.shape().to_string());
  const Tensor places = rows_of("scatter_rows", shape, index);
  const Tensor y = scattered(shape, x.value(), places, x.value().dtype());
  return tape.result("scatter_rows", y, {&x},
                     [x, places](const Tensor& dout) { add_to_gradient(x, gathered(x.shape(), dout, places)); });
}

Tensor top_k(const Tensor& scores, int64_t k, const Tensor& mask) {
  QUIRE_CHECK(k >= 1, "top_k: k is {}", k);
  Shape shape = scores.shape();
  shape[-1] = k;
  const Tensor index = Tensor::empty(shape, DType::i32, scores.device());
  ops::top_k(index, scores, mask.defined() ? mask.broadcast(scores.shape()) : mask);
  return index;
}

}  // namespace quire
