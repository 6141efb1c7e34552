#include "trainers/optimizer/newton_schulz.h"

#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/optimizer.h"

namespace quire {

void orthogonalise(const Tensor& x, int64_t steps) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const Tensor square_of_norm = Tensor::zeros({1}, DType::f64, x.device());
  ops::squared_norm(square_of_norm, x);
  ops::divide_by_norm(x, square_of_norm);
  const bool tall = x.dim(0) > x.dim(1);
  const int64_t side = std::min(x.dim(0), x.dim(1));
  const Tensor gram = Tensor::empty({side, side}, x.dtype(), x.device());
  const Tensor squared = Tensor::empty_like(gram);
  const Tensor product = Tensor::empty_like(x);
  for (int64_t step = 0; step < steps; ++step) {
    ops::gemm(gram, x, x, {.transpose_a = tall, .transpose_b = !tall});
    ops::gemm(squared, gram, gram, {});
    ops::add(gram, gram, squared, kB, kC);
    if (tall) {
      ops::gemm(product, x, gram, {});
    } else {
      ops::gemm(product, gram, x, {});
    }
    ops::add(x, x, product, kA, 1);
  }
}

}  // namespace quire
