// Products through cuBLASLt. cuBLASLt is column-major: a row-major C = A B is C^T = B^T A^T there, so b comes first.
#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "core/check.h"
#include "kernels/checks.h"
#include "kernels/cuda/bind.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda_scratch.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"

namespace quire::cuda {

namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("cuBLASLt: {}: {}", call, cublasLtGetStatusString(status)));
  }
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
using Preference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, Destroy<cublasLtMatmulPreferenceDestroy>>;

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

std::string to_text(const Problem& p) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {:d} {:d} {:d} {:d} {:d} {} {:d} {:d}", p.m,
                     p.n, p.k, p.products, p.a_step, p.b_step, p.c_step, p.a_stride, p.b_stride, p.c_stride,
                     p.a_alignment, p.b_alignment, p.c_alignment, p.bias_alignment, p.residual_alignment,
                     p.aux_alignment, p.in_type, p.out_type, p.transpose_a, p.transpose_b, p.accumulate, p.bias,
                     p.residual, p.activation, p.gradient, p.aux);
}

constexpr size_t kWorkspaceBytes = kProductWorkspaceBytes;

// To rows with any stride between them.
void add_bias(const Tensor& to, const Tensor& bias) {
  if (to.is_contiguous()) return ops::add_bias(to, to, bias);
  const Tensor packed = Tensor::empty(to.shape(), to.dtype(), to.device());
  ops::copy(packed, to);
  ops::add_bias(packed, packed, bias);
  ops::copy(to, packed);
}

// How each problem is run: the first proposal of cuBLASLt, which depends on its version and on the GPU only. The table
// goes into checkpoints, so that a run goes on with what it began with.
class Products {
 public:
  Products() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }

  void run(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& given, int64_t k) {
    ops::GemmOptions o = given;
    o.bias = bias_to_build_in(given.bias, c.dtype());
    const bool several = c.rank() == 3;
    const std::optional<ops::Activation> activation = o.gradient_of ? o.gradient_of : o.activation;
    const auto step = [several](const Tensor& x) { return several ? x.stride(0) : 0; };
    const Problem problem{c.dim(-2),
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
    const Fused fused = multiply(problem, c, a, b, o);
    // What the product does not do itself is done to its result.
    const Tensor& to = result_of(fused, c, o);
    if (o.bias.defined() && fused < Fused::bias) add_bias(to, given.bias);
    if (o.activation && fused < Fused::activation) ops::activation(c, to, *o.activation);
    if (o.gradient_of && fused < Fused::activation) ops::activation_backward(c, c, o.at, *o.gradient_of);
  }

  std::string choices() const {
    const std::lock_guard lock(mutex_);
    std::string text = heading();
    for (const auto& [problem, plan] : plans_) {
      text += fmt::format("{}:{}", to_text(problem), static_cast<int>(plan.fused));
      for (const uint64_t word : plan.algorithm.data) text += fmt::format(" {:x}", word);
      text += '\n';
    }
    return plans_.empty() ? "" : text;
  }

  bool use_choices(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (text.rfind(heading(), 0) != 0) return text.empty();
    for (size_t at = heading().size(); at < text.size();) {
      const size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      const size_t colon = line.find(':');
      stored_[line.substr(0, colon)] = line.substr(colon + 1);
      at = end + 1;
    }
    return true;
  }

 private:
  // cuBLASLt adds a bias of the type of the result, as weights are there beside it.
  static Tensor bias_to_build_in(const Tensor& bias, DType type) {
    if (!bias.defined() || bias.dtype() == type) return bias;
    const Tensor made = Tensor::empty(bias.shape(), type, bias.device());
    ops::convert(made, bias);
    return made;
  }

  // How much of what follows a product it does itself.
  enum class Fused { nothing, bias, activation };

  struct Plan {
    MatmulDesc matmul;
    MatrixLayout a, b, c;
    cublasLtMatmulAlgo_t algorithm{};
    Fused fused = Fused::nothing;
  };

  static std::string heading() {
    return fmt::format("cublasLt {} on {}\n", cublasLtGetVersion(), device_backend(DeviceKind::cuda).name());
  }

  static MatrixLayout layout(DType type, int64_t rows, int64_t columns, int64_t stride, int64_t count, int64_t step) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, data_type(type), static_cast<uint64_t>(columns),
                                     static_cast<uint64_t>(rows), stride),
          "cublasLtMatrixLayoutCreate");
    MatrixLayout layout(made);
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
    return layout;
  }

  template <typename T>
  static void set(const MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof value),
          "cublasLtMatrixLayoutSetAttribute");
  }

  template <typename T>
  static void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  template <typename T>
  static void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  static bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  }

  static const Tensor& aux_of(const ops::GemmOptions& o) { return o.gradient_of ? o.at : o.pre; }

  static const Tensor& result_of(Fused fused, const Tensor& c, const ops::GemmOptions& o) {
    return fused < Fused::activation && o.pre.defined() ? o.pre : c;
  }

  // Returns what the product has done.
  Fused multiply(const Problem& problem, const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o) {
    const std::lock_guard lock(mutex_);
    const Plan* plan = &plan_of(problem, o);
    cublasStatus_t status = multiply(*plan, c, a, b, o);
    // The library may propose what it then refuses.
    while (is_refusal(status) && plan->fused != Fused::nothing) {
      const auto less = static_cast<Fused>(static_cast<int>(plan->fused) - 1);
      plan = &plans_.insert_or_assign(problem, proposed_plan(problem, less, o)).first->second;
      status = multiply(*plan, c, a, b, o);
    }
    check(status, "cublasLtMatmul");
    return plan->fused;
  }

  cublasStatus_t multiply(const Plan& plan, const Tensor& c, const Tensor& a, const Tensor& b,
                          const ops::GemmOptions& o) {
    set_pointers(plan, o);
    const Tensor& to = result_of(plan.fused, c, o);
    const float one = 1;
    const Tensor& added_to = o.residual.defined() ? o.residual : to;
    const float beta = o.accumulate || o.residual.defined() ? 1 : 0;
    const double wide_one = 1;
    const double wide_beta = beta;
    const bool wide = a.dtype() == DType::f64;
    return cublasLtMatmul(handle_, plan.matmul.get(), wide ? static_cast<const void*>(&wide_one) : &one, b.raw(),
                          plan.b.get(), a.raw(), plan.a.get(), wide ? static_cast<const void*>(&wide_beta) : &beta,
                          added_to.raw(), plan.c.get(), to.raw(), plan.c.get(), &plan.algorithm, workspace(),
                          kWorkspaceBytes, stream());
  }

  const Plan& plan_of(const Problem& problem, const ops::GemmOptions& o) {
    const auto found = plans_.find(problem);
    if (found != plans_.end()) return found->second;
    const auto stored = stored_.find(to_text(problem));
    std::optional<Plan> plan;
    if (stored != stored_.end()) plan = stored_plan(problem, stored->second, o);
    if (!plan) plan = proposed_plan(problem, Fused::activation, o);
    return plans_.emplace(problem, std::move(*plan)).first->second;
  }

  static Plan make_plan(const Problem& p) {
    const auto in = static_cast<DType>(p.in_type);
    const auto out = static_cast<DType>(p.out_type);
    Plan plan;
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

  static cublasLtEpilogue_t epilogue(const Problem& p, Fused fused) {
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

  static void fuse(Plan& plan, const Problem& problem, Fused fused, const ops::GemmOptions& o) {
    plan.fused = fused;
    set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(problem, fused));
    if (problem.bias && fused >= Fused::bias) {
      const cudaDataType_t type = data_type(static_cast<DType>(problem.out_type));
      set(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type));
    }
    if (problem.aux && fused == Fused::activation) {
      set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.n);
    }
    set_pointers(plan, o);  // the library looks at their alignment
  }

  static void set_pointers(const Plan& plan, const ops::GemmOptions& o) {
    if (o.bias.defined() && plan.fused >= Fused::bias) {
      set(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(o.bias.raw()));
    }
    if (aux_of(o).defined() && plan.fused == Fused::activation) {
      set(plan.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_of(o).raw());
    }
  }

  // ReLU writes and reads no values it was applied to, only their signs; there is no SiLU.
  // GELU and its gradient are built in for bf16: the library does not say how exact its own are. The values that it was
  // applied to need a stride that is a multiple of 8.
  static bool can_fuse(const Problem& p, Fused fused) {
    if (fused == Fused::nothing) return true;
    const auto in = static_cast<DType>(p.in_type);
    if (fused == Fused::bias) return p.bias;
    if (p.activation == static_cast<int>(ops::Activation::relu) + 1) return !p.aux;
    if (p.activation != static_cast<int>(ops::Activation::gelu) + 1 || in != DType::bf16) return false;
    return !p.aux || (p.n % 8 == 0 && p.aux_alignment >= 16);
  }

  // Not every type has everything built in.
  Plan proposed_plan(const Problem& problem, Fused most, const ops::GemmOptions& o) {
    for (int fused = static_cast<int>(most); fused >= 0; --fused) {
      if (!can_fuse(problem, static_cast<Fused>(fused))) continue;
      // Of its own: what one try has set is not taken back.
      Plan plan = make_plan(problem);
      fuse(plan, problem, static_cast<Fused>(fused), o);
      if (propose(plan, problem)) return plan;
    }
    throw DeviceError("cuBLASLt: knows no way to run this product");
  }

  bool propose(Plan& plan, const Problem& problem) {
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
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, plan.matmul.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                       plan.c.get(), preference.get(), 1, &best, &count);
    if (is_refusal(status)) return false;
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0) return false;
    plan.algorithm = best.algo;
    return true;
  }

  // text: "1 4f 0 ...", how much is fused, and the words of the algorithm.
  std::optional<Plan> stored_plan(const Problem& problem, const std::string& text, const ops::GemmOptions& o) const {
    char* after = nullptr;
    const auto fused = static_cast<Fused>(std::strtoul(text.c_str(), &after, 10));
    if (fused > Fused::activation || !can_fuse(problem, fused)) return std::nullopt;
    Plan plan = make_plan(problem);
    fuse(plan, problem, fused, o);
    for (uint64_t& word : plan.algorithm.data) word = std::strtoull(after, &after, 16);
    cublasLtMatmulHeuristicResult_t checked{};
    const bool fits = cublasLtMatmulAlgoCheck(handle_, plan.matmul.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                              plan.c.get(), &plan.algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
                      checked.workspaceSize <= kWorkspaceBytes;
    return fits ? std::optional(std::move(plan)) : std::nullopt;
  }

  void* workspace() {
    if (!workspace_.defined()) {
      workspace_ = Tensor::empty({static_cast<int64_t>(kWorkspaceBytes)}, DType::u8, {DeviceKind::cuda, 0});
    }
    return workspace_.raw();
  }

  cublasLtHandle_t handle_ = nullptr;
  mutable std::mutex mutex_;
  std::map<Problem, Plan> plans_;
  std::map<std::string, std::string> stored_;  // problem -> choice, of the checkpoint the run goes on from
  Tensor workspace_;
};

// Never destroyed: the driver may have shut down before statics are.
Products& products() {
  static Products& all = *new Products;
  return all;
}

void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options) {
  const int64_t k = check_gemm(c, a, b, options);
  if (c.numel() == 0) return;
  if (k == 0) {
    const Tensor& to = options.pre.defined() ? options.pre : c;
    if (!options.accumulate) ops::select(to, Tensor::zeros({1}, DType::u8, to.device()).broadcast(to.shape()), {}, {});
    if (options.bias.defined()) add_bias(to, options.bias);
    if (options.residual.defined()) ops::add(to, options.residual, to, 1, 1);
    if (options.activation) ops::activation(c, to, *options.activation);
    return;
  }
  products().run(c, a, b, options, k);
}

}  // namespace

std::string product_choices() {
  return products().choices();
}

bool use_product_choices(const std::string& choices) {
  return products().use_choices(choices);
}

void bind_gemm() {
  ops::gemm.bind(DeviceKind::cuda, gemm);
}

}  // namespace quire::cuda
