// The Newton-Schulz iteration of Muon (Jordan et al. 2024): an approximation of the nearest orthogonal matrix.
#pragma once

#include "core/tensor.h"

namespace quire {

// x [n, m], contiguous, f32 or f64, becomes about U V^T of its singular value decomposition U S V^T: singular values
// above a thousandth of the norm come out between 0.68 and 1.14 after five steps. A matrix of zeros stays one. After x
// is divided by its Frobenius norm, each step is x <- a x + b A x + c A^2 x with A = x x^T and a, b, c = 3.4445,
// -4.7750, 2.0315; where n > m it is the same from the right.
void orthogonalise(const Tensor& x, int64_t steps);

}  // namespace quire
