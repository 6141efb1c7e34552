// Products through cuBLASLt.
#include <map>
#include <mutex>
#include <optional>

#include "kernels/checks.h"
#include "kernels/cuda/products/product_plans.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"

namespace quire::cuda {

namespace {

// Adds a bias to rows with any stride between them.
void add_bias(const Tensor& to, const Tensor& bias) {
  if (to.is_contiguous()) return ops::add_bias(to, to, bias);
  const Tensor packed = Tensor::empty(to.shape(), to.dtype(), to.device());
  ops::copy(packed, to);
  ops::add_bias(packed, packed, bias);
  ops::copy(to, packed);
}

// Returns the bias in the type of the result, which is the one that cuBLASLt adds.
Tensor bias_to_build_in(const Tensor& bias, DType type) {
  if (!bias.defined() || bias.dtype() == type) return bias;
  const Tensor made = Tensor::empty(bias.shape(), type, bias.device());
  ops::convert(made, bias);
  return made;
}

// Does after the product what it has not done itself.
void finish(Fused fused, const Tensor& c, const Tensor& a, const ops::GemmOptions& o) {
  const Tensor& to = result_of(fused, c, o);
  if (o.bias.defined() && fused < Fused::bias) add_bias(to, o.bias);
  if (o.activation && fused < Fused::activation) ops::activation(c, to, *o.activation);
  if (o.gradient_of && fused < Fused::activation) ops::activation_backward(c, c, o.at, *o.gradient_of);
  if (o.sums.defined()) ops::sum_rows(o.sums, a, o.add_sums);
}

// Holds the plan of each problem: the first proposal of cuBLASLt, which depends on its version and on the GPU only.
class Products {
 public:
  void run(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& given, int64_t k) {
    ops::GemmOptions o = given;
    o.bias = bias_to_build_in(given.bias, c.dtype());
    finish(multiply(problem_of(c, a, b, o, k), c, a, b, o), c, a, given);
  }

 private:
  ProductPlan make_plan(const Problem& problem, Fused max_fused, const ops::GemmOptions& o) {
    std::optional<ProductPlan> plan = planner_.plan(problem, max_fused, o);
    if (!plan) throw DeviceError("cuBLASLt: knows no way to run this product");
    return std::move(*plan);
  }

  // Runs the product and returns how much of its extra work it has done.
  Fused multiply(const Problem& problem, const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o) {
    const std::lock_guard lock(mutex_);
    auto found = plans_.find(problem);
    if (found == plans_.end()) found = plans_.emplace(problem, make_plan(problem, Fused::activation, o)).first;
    ProductPlan& plan = found->second;
    cublasStatus_t status = planner_.run(plan, c, a, b, o);
    // The library may propose what it then refuses.
    while (is_refusal(status) && plan.fused != Fused::nothing) {
      plan = make_plan(problem, less(plan.fused), o);
      status = planner_.run(plan, c, a, b, o);
    }
    check(status, "cublasLtMatmul");
    return plan.fused;
  }

  std::mutex mutex_;
  ProductPlanner planner_;
  std::map<Problem, ProductPlan> plans_;
};

// Returns the products, which are never destroyed: the driver may have shut down before statics are.
Products& products() {
  static Products& all = *new Products;
  return all;
}

void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options) {
  const int64_t k = check_gemm(c, a, b, options);
  if (c.numel() == 0 || k == 0) {
    if (options.sums.defined()) ops::sum_rows(options.sums, a, options.add_sums);
    if (c.numel() == 0) return;
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

void bind_gemm() {
  ops::gemm.bind(DeviceKind::cuda, gemm);
}

}  // namespace quire::cuda
