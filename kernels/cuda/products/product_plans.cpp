// cuBLASLt is column-major: a row-major C = A B is C^T = B^T A^T there, so b comes first.
#include "kernels/cuda/products/product_plans.h"

#include <algorithm>

#include "kernels/cuda/stream.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

namespace {

using Preference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, Destroy<cublasLtMatmulPreferenceDestroy>>;

constexpr size_t kWorkspaceBytes = kProductWorkspaceBytes;

cudaDataType_t data_type(DType type) {
  if (type == DType::f64) return CUDA_R_64F;
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Returns the largest power of two up to 256 that divides the address of every product's matrix; 256 without a tensor.
int alignment_of(const Tensor& x) {
  if (!x.defined()) return 256;
  const int64_t step = x.rank() == 3 ? x.stride(0) * static_cast<int64_t>(size_of(x.dtype())) : 0;
  const uintptr_t address = reinterpret_cast<uintptr_t>(x.raw()) | static_cast<uintptr_t>(step);
  int alignment = 256;
  while (address % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

template <typename T>
void set(const MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof value),
        "cublasLtMatrixLayoutSetAttribute");
}

template <typename T>
void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

MatrixLayout layout(DType type, int64_t rows, int64_t columns, int64_t stride, int64_t count, int64_t step) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, data_type(type), static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                   stride),
        "cublasLtMatrixLayoutCreate");
  MatrixLayout layout(made);
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  return layout;
}

ProductPlan make_plan(const Problem& p) {
  const auto in = static_cast<DType>(p.in_type);
  const auto out = static_cast<DType>(p.out_type);
  ProductPlan plan;
  cublasLtMatmulDesc_t made = nullptr;
  check(cublasLtMatmulDescCreate(&made, in == DType::f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 in == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  plan.matmul.reset(made);
  set(plan.matmul, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.matmul, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  plan.a = layout(in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.a_stride, p.products, p.a_step);
  plan.b = layout(in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.b_stride, p.products, p.b_step);
  plan.c = layout(out, p.m, p.n, p.c_stride, p.products, p.c_step);
  return plan;
}

cublasLtEpilogue_t epilogue(const Problem& p, Fused fused) {
  const bool bias = p.bias && fused >= Fused::bias;
  if (fused < Fused::activation || p.activation == 0) {
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  if (p.activation == static_cast<int>(ops::Activation::relu) + 1) {
    return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  }
  if (p.gradient) return CUBLASLT_EPILOGUE_DGELU;
  if (p.aux) return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

const void* bias_of(const ProductPlan& plan, const ops::GemmOptions& o) {
  return o.bias.defined() && plan.fused >= Fused::bias ? o.bias.raw() : nullptr;
}

void* built_in_aux_of(const ProductPlan& plan, const ops::GemmOptions& o) {
  return aux_of(o).defined() && plan.fused == Fused::activation ? aux_of(o).raw() : nullptr;
}

void set_pointers(const ProductPlan& plan, const void* bias, void* aux) {
  if (bias != nullptr) set(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (aux != nullptr) set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

void fuse(ProductPlan& plan, const Problem& problem, Fused fused, const ops::GemmOptions& o) {
  plan.fused = fused;
  set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(problem, fused));
  if (problem.bias && fused >= Fused::bias) {
    const cudaDataType_t type = data_type(static_cast<DType>(problem.out_type));
    set(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type));
  }
  if (problem.aux && fused == Fused::activation) {
    set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.n);
  }
  set_pointers(plan, bias_of(plan, o), built_in_aux_of(plan, o));  // the library looks at their alignment
}

// Says whether cuBLASLt can do so much itself. For ReLU it writes and reads signs instead of the values that it was
// applied to; it has no SiLU. GELU and its gradient are built in for bf16 only, because the library does not say how
// exact its own are. The values that GELU was applied to need a stride that is a multiple of 8.
bool can_fuse(const Problem& p, Fused fused) {
  if (fused == Fused::nothing) return true;
  const auto in = static_cast<DType>(p.in_type);
  if (fused == Fused::bias) return p.bias;
  if (p.activation == static_cast<int>(ops::Activation::relu) + 1) return !p.aux;
  if (p.activation != static_cast<int>(ops::Activation::gelu) + 1 || in != DType::bf16) return false;
  return !p.aux || (p.n % 8 == 0 && p.aux_alignment >= 16);
}

}  // namespace

Problem problem_of(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o, int64_t k) {
  const bool several = c.rank() == 3;
  const std::optional<ops::Activation> activation = o.gradient_of ? o.gradient_of : o.activation;
  const auto step = [several](const Tensor& x) { return several ? x.stride(0) : 0; };
  return {c.dim(-2),
          c.dim(-1),
          k,
          several ? c.dim(0) : 1,
          step(a),
          step(b),
          step(c),
          a.stride(-2),
          b.stride(-2),
          c.stride(-2),
          alignment_of(a),
          alignment_of(b),
          std::min(alignment_of(c), alignment_of(o.pre)),  // the product may write either of them
          alignment_of(o.bias),
          alignment_of(o.residual),
          alignment_of(aux_of(o)),
          static_cast<int>(a.dtype()),
          static_cast<int>(c.dtype()),
          o.transpose_a,
          o.transpose_b,
          o.accumulate,
          o.bias.defined(),
          o.residual.defined(),
          activation ? static_cast<int>(*activation) + 1 : 0,
          o.gradient_of.has_value(),
          aux_of(o).defined()};
}

// Tries to fuse as much as allowed, since not every type has everything built in.
std::optional<ProductPlan> ProductPlanner::plan(const Problem& problem, Fused max_fused, const ops::GemmOptions& o) {
  for (int fused = static_cast<int>(max_fused); fused >= 0; --fused) {
    if (!can_fuse(problem, static_cast<Fused>(fused))) continue;
    // Each try has its own plan, because settings cannot be taken back.
    ProductPlan made = make_plan(problem);
    fuse(made, problem, static_cast<Fused>(fused), o);
    if (propose(made, problem)) return made;
  }
  return std::nullopt;
}

bool ProductPlanner::propose(ProductPlan& plan, const Problem& problem) const {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // Partial sums, where a product is cut along K, are added up in f32 and in a fixed order.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(problem.b_alignment));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(problem.a_alignment));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      static_cast<uint32_t>(problem.residual ? problem.residual_alignment : problem.c_alignment));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(problem.c_alignment));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.matmul.get(), plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(),
                                     preference.get(), 1, &result, &found);
  if (is_refusal(status)) return false;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) return false;
  plan.algorithm = result.algo;
  return true;
}

cublasStatus_t ProductPlanner::run(const ProductPlan& plan, const Tensor& c, const Tensor& a, const Tensor& b,
                                   const ops::GemmOptions& o) {
  if (!workspace_.defined()) {
    workspace_ = Tensor::empty({static_cast<int64_t>(kWorkspaceBytes)}, DType::u8, {DeviceKind::cuda, 0});
  }
  set_pointers(plan, bias_of(plan, o), built_in_aux_of(plan, o));
  const Tensor& to = result_of(plan.fused, c, o);
  const Tensor& added_to = o.residual.defined() ? o.residual : to;
  const bool adds = o.accumulate || o.residual.defined();
  const bool wide = a.dtype() == DType::f64;
  const float one = 1;
  const float beta = adds ? 1 : 0;
  const double wide_one = 1;
  const double wide_beta = beta;
  return cublasLtMatmul(handle_, plan.matmul.get(), wide ? static_cast<const void*>(&wide_one) : &one, b.raw(),
                        plan.b.get(), a.raw(), plan.a.get(), wide ? static_cast<const void*>(&wide_beta) : &beta,
                        added_to.raw(), plan.c.get(), to.raw(), plan.c.get(), &plan.algorithm, workspace_.raw(),
                        kWorkspaceBytes, stream());
}

}  // namespace quire::cuda
