// Describes a product to cuBLASLt, and runs it in the way that cuBLASLt proposes first.
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

// Says whether a status means that the library does not cover a product, or proposed a way to run it and then refuses
// it.
inline bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

// Holds everything that decides how a product, or several of one kind, can be run.
struct Problem {
  int64_t m, n, k;
  int64_t products, a_step, b_step, c_step;  // their number, and elements from one to the next
  int64_t a_stride, b_stride, c_stride;
  int a_alignment, b_alignment, c_alignment, bias_alignment, residual_alignment, aux_alignment;
  int in_type, out_type;
  bool transpose_a, transpose_b, accumulate, bias, residual;
  int activation;  // 0: none
  bool gradient;   // its gradient is built in instead
  bool aux;        // its operand: written, or read by the gradient
  auto operator<=>(const Problem&) const = default;
};

Problem problem_of(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o, int64_t k);

// The parts of the work around a product that it does itself.
enum class Fused { nothing, bias, activation };

inline Fused less(Fused fused) {
  return static_cast<Fused>(static_cast<int>(fused) - 1);
}

// Returns the values that an activation was applied to: written by a product, or read by one with its gradient.
inline const Tensor& aux_of(const ops::GemmOptions& o) {
  return o.gradient_of ? o.at : o.pre;
}

// Returns the tensor to which a product that does so much itself writes its result.
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

// Makes plans and runs them. Only one thread may use it at a time.
class ProductPlanner {
 public:
  ProductPlanner() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }

  // Returns the way to run the product that cuBLASLt proposes first, with as much fused as possible, at most max_fused;
  // nothing when it has none.
  std::optional<ProductPlan> plan(const Problem& problem, Fused max_fused, const ops::GemmOptions& o);
  // Runs a plan on the stream of this process.
  cublasStatus_t run(const ProductPlan& plan, const Tensor& c, const Tensor& a, const Tensor& b,
                     const ops::GemmOptions& o);

 private:
  bool propose(ProductPlan& plan, const Problem& problem) const;

  cublasLtHandle_t handle_ = nullptr;
  Tensor workspace_;
};

}  // namespace quire::cuda
