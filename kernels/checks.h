// What kernels of every device ask of their operands. Each throws Error(internal) that names the operation.
#pragma once

#include <initializer_list>

#include "kernels/gemm.h"

namespace quire {

// Contiguous, with as many elements of one type.
void require_alike(const char* op, std::initializer_list<const Tensor*> tensors);
// Returns K.
int64_t check_gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options);
void check_copy(const Tensor& out, const Tensor& in);
void check_convert(const Tensor& out, const Tensor& in);
void check_add_bias(const Tensor& out, const Tensor& in, const Tensor& bias);

}  // namespace quire
