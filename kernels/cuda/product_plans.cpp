// cuBLASLt is column-major: a row-major C = A B is C^T = B^T A^T there, so b comes first.
#include "kernels/cuda/product_plans.h"

#include <algorithm>
#include <array>
#include <cstdlib>

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

// The largest power of two up to 256 that divides the address of every product's matrix; of no tensor, 256.
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
  static int64_t made_before = 0;
  ProductPlan plan;
  plan.number = ++made_before;
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
  if (p.sums && fused >= Fused::bias) return CUBLASLT_EPILOGUE_BGRADB;
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
  const Tensor& bias = o.sums.defined() ? o.sums : o.bias;
  return bias.defined() && plan.fused >= Fused::bias ? bias.raw() : nullptr;
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
  if ((problem.bias || problem.sums) && fused >= Fused::bias) {
    const cudaDataType_t type = data_type(static_cast<DType>(problem.out_type));
    set(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type));
  }
  if (problem.aux && fused == Fused::activation) {
    set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.n);
  }
  set_pointers(plan, bias_of(plan, o), built_in_aux_of(plan, o));  // the library looks at their alignment
}

// ReLU writes and reads no values it was applied to, only their signs; there is no SiLU.
// GELU and its gradient are built in for bf16: the library does not say how exact its own are. The values that it was
// applied to need a stride that is a multiple of 8.
// Sums of rows are of the type of the result.
bool can_fuse(const Problem& p, Fused fused) {
  if (fused == Fused::nothing) return true;
  const auto in = static_cast<DType>(p.in_type);
  if (fused == Fused::bias && p.sums)
    return p.k > 1 && in != DType::f64 && static_cast<DType>(p.out_type) == DType::f32;
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
          std::min(alignment_of(c), alignment_of(o.pre)),  // either can be what the product writes
          alignment_of(o.sums.defined() ? o.sums : o.bias),
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
          aux_of(o).defined(),
          o.sums.defined()};
}

std::string to_text(const Problem& p) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {:d} {:d} {:d} {:d} {:d} {} {:d} {:d} {:d}",
                     p.m, p.n, p.k, p.products, p.a_step, p.b_step, p.c_step, p.a_stride, p.b_stride, p.c_stride,
                     p.a_alignment, p.b_alignment, p.c_alignment, p.bias_alignment, p.residual_alignment,
                     p.aux_alignment, p.in_type, p.out_type, p.transpose_a, p.transpose_b, p.accumulate, p.bias,
                     p.residual, p.activation, p.gradient, p.aux, p.sums);
}

std::string describe(const Problem& p) {
  std::string text = p.products == 1 ? "" : fmt::format("{} of ", p.products);
  text += fmt::format("{} x {} over {} in {}", p.m, p.n, p.k, name_of(static_cast<DType>(p.in_type)));
  if (p.transpose_a) text += ", first one turned";
  if (p.transpose_b) text += ", second one turned";
  if (p.bias) text += ", bias";
  if (p.sums) text += ", sums of rows";
  if (p.activation != 0) text += p.gradient ? ", gradient of an activation" : ", activation";
  if (p.accumulate || p.residual) text += ", added";
  return text;
}

std::string ProductPlan::to_text() const {
  std::string text = fmt::format("{}", static_cast<int>(fused));
  for (const uint64_t word : algorithm.data) text += fmt::format(" {:x}", word);
  return text;
}

// Not every type has everything built in.
std::optional<ProductProposals> ProductPlanner::proposals(const Problem& problem, Fused most, const ops::GemmOptions& o,
                                                          int count) {
  for (int fused = static_cast<int>(most); fused >= 0; --fused) {
    if (!can_fuse(problem, static_cast<Fused>(fused))) continue;
    // Of its own: what one try has set is not taken back.
    ProductProposals made{make_plan(problem), {}};
    fuse(made.plan, problem, static_cast<Fused>(fused), o);
    if (propose(made, problem, count)) return made;
  }
  return std::nullopt;
}

bool ProductPlanner::propose(ProductProposals& proposals, const Problem& problem, int count) const {
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
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  ProductPlan& plan = proposals.plan;
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, plan.matmul.get(), plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(),
                                     preference.get(), count, results.data(), &found);
  if (is_refusal(status)) return false;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<size_t>(found));
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes) {
      proposals.algorithms.push_back(result.algo);
    }
  }
  if (proposals.algorithms.empty()) return false;
  plan.algorithm = proposals.algorithms.front();
  return true;
}

std::optional<ProductPlan> ProductPlanner::stored_plan(const Problem& problem, const std::string& text,
                                                       const ops::GemmOptions& o) const {
  char* after = nullptr;
  const auto fused = static_cast<Fused>(std::strtoul(text.c_str(), &after, 10));
  if (fused > Fused::activation || !can_fuse(problem, fused)) return std::nullopt;
  ProductPlan plan = make_plan(problem);
  fuse(plan, problem, fused, o);
  for (uint64_t& word : plan.algorithm.data) word = std::strtoull(after, &after, 16);
  cublasLtMatmulHeuristicResult_t checked{};
  const bool fits = cublasLtMatmulAlgoCheck(handle_, plan.matmul.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                            plan.c.get(), &plan.algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
                    checked.workspaceSize <= kWorkspaceBytes;
  return fits ? std::optional(std::move(plan)) : std::nullopt;
}

ProductCall ProductPlanner::call(const ProductPlan& plan, const Tensor& c, const Tensor& a, const Tensor& b,
                                 const ops::GemmOptions& o, const Tensor& instead) {
  if (!workspace_.defined()) {
    workspace_ = Tensor::empty({static_cast<int64_t>(kWorkspaceBytes)}, DType::u8, {DeviceKind::cuda, 0});
  }
  const Tensor& result = result_of(plan.fused, c, o);
  return {.plan = &plan,
          .number = plan.number,
          .a = a.raw(),
          .b = b.raw(),
          .added_to = (o.residual.defined() ? o.residual : result).raw(),
          .to = (instead.defined() ? instead : result).raw(),
          .bias = bias_of(plan, o),
          .aux = built_in_aux_of(plan, o),
          .adds = o.accumulate || o.residual.defined(),
          .wide = a.dtype() == DType::f64};
}

cublasStatus_t ProductPlanner::run(const ProductCall& call, cudaStream_t on) const {
  const ProductPlan& plan = *call.plan;
  set_pointers(plan, call.bias, call.aux);
  const float one = 1;
  const float beta = call.adds != 0 ? 1 : 0;
  const double wide_one = 1;
  const double wide_beta = beta;
  const bool wide = call.wide != 0;
  return cublasLtMatmul(handle_, plan.matmul.get(), wide ? static_cast<const void*>(&wide_one) : &one, call.b,
                        plan.b.get(), call.a, plan.a.get(), wide ? static_cast<const void*>(&wide_beta) : &beta,
                        call.added_to, plan.c.get(), call.to, plan.c.get(), &plan.algorithm, workspace_.raw(),
                        kWorkspaceBytes, on);
}

cublasStatus_t ProductPlanner::run(const ProductPlan& plan, const Tensor& c, const Tensor& a, const Tensor& b,
                                   const ops::GemmOptions& o, const Tensor& instead) {
  return run(call(plan, c, a, b, o, instead), stream());
}

}  // namespace quire::cuda
