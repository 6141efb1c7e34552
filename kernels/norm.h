// Normalisations over the last axis: x [M, N]. Statistics in f32 (f64 for f64 tensors).
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// RMSNorm (Zhang and Sennrich 2019): y = weight * x / sqrt(mean(x^2) + eps); rstd [M] is saved for backward.
QUIRE_OP(rms_norm, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight, double eps);
// dweight [N] accumulates, and so does dx when accumulate_dx is set.
QUIRE_OP(rms_norm_backward, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
         const Tensor& weight, const Tensor& rstd, bool accumulate_dx);

// LayerNorm (Ba et al. 2016): y = weight * (x - mean) / sqrt(var + eps) + bias, population variance; mean, rstd [M].
QUIRE_OP(layer_norm, const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x, const Tensor& weight,
         const Tensor& bias, double eps);
// dweight, dbias [N] accumulate, and so does dx when accumulate_dx is set.
QUIRE_OP(layer_norm_backward, const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
         const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, bool accumulate_dx);

// y = x / sqrt(sum(x^2) + eps): queries and keys of Memorizing Transformers. rnorm [M] is saved for backward.
QUIRE_OP(l2_norm, const Tensor& y, const Tensor& rnorm, const Tensor& x, double eps);
QUIRE_OP(l2_norm_backward, const Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& rnorm);

}  // namespace quire::ops
