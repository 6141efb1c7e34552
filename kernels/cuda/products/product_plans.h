// How a product is described to cuBLASLt, and the way to run it that cuBLASLt proposes first.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <optional>
#include <type_traits>

#include "core/check.h"
#include "kernels/gemm.h"

namespace quire::cuda {

inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("cuBLASLt: {}: {}", call, cublasLtGetStatusString(status)));
  }
}

// What the library says when it does not cover a product, or proposes a way to run it and then does not.
inline bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

// All that decides how a product, or several of one kind, can be run.
struct Problem {
  int64_t m, n, k;
  int64_t products, a_step, b_step, c_step;  // how many, and elements from one to the next
  int64_t a_stride, b_stride, c_stride;
  int a_alignment, b_alignment, c_alignment, bias_alignment, residual_alignment, aux_alignment;
  int in_type, out_type;
  bool transpose_a, transpose_b, accumulate, bias, residual;
  int activation;  // 0: none
  bool gradient;   // what is built in is its gradient
  bool aux;        // its operand: written, or read by the gradient
  auto operator<=>(const Problem&) const = default;
};

Problem problem_of(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o, int64_t k);

// How much of what goes with a product it does itself.
enum class Fused { nothing, bias, activation };

inline Fused less(Fused fused) {
  return static_cast<Fused>(static_cast<int>(fused) - 1);
}

// What an activation was applied to: written by a product, or read by one with its gradient.
inline const Tensor& aux_of(const ops::GemmOptions& o) {
  return o.gradient_of ? o.at : o.pre;
}

// Where a product that does so much itself leaves its result.
inline const Tensor& result_of(Fused fused, const Tensor& c, const ops::GemmOptions& o) {
  return fused < Fused::activation && o.pre.defined() ? o.pre : c;
}

template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using MatmulDesc = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy<cublasLtMatmulDescDestroy>>;
using MatrixLayout =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroy<cublasLtMatrixLayoutDestroy>>;

struct ProductPlan {
  MatmulDesc matmul;
  MatrixLayout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  Fused fused = Fused::nothing;
};

// Makes plans and runs them. Not for several threads at a time.
class ProductPlanner {
 public:
  ProductPlanner() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }

  // The way to run the product that cuBLASLt proposes first, with as much fused as it can and `most` at most; nothing
  // where it knows none.
  std::optional<ProductPlan> plan(const Problem& problem, Fused most, const ops::GemmOptions& o);
  // On the stream of this process.
  cublasStatus_t run(const ProductPlan& plan, const Tensor& c, const Tensor& a, const Tensor& b,
                     const ops::GemmOptions& o);

 private:
  bool propose(ProductPlan& plan, const Problem& problem) const;

  cublasLtHandle_t handle_ = nullptr;
  Tensor workspace_;
};

}  // namespace quire::cuda
