// Products through cuBLASLt.
#include "kernels/cuda/gemm.h"

#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "kernels/checks.h"
#include "kernels/cuda/bind.h"
#include "kernels/cuda/call_queue.h"
#include "kernels/cuda/product_timing.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"

namespace quire::cuda {

namespace {

// To rows with any stride between them.
void add_bias(const Tensor& to, const Tensor& bias) {
  if (to.is_contiguous()) return ops::add_bias(to, to, bias);
  const Tensor packed = Tensor::empty(to.shape(), to.dtype(), to.device());
  ops::copy(packed, to);
  ops::add_bias(packed, packed, bias);
  ops::copy(to, packed);
}

// How each problem is run: by the first proposal of cuBLASLt, which depends on its version and on the GPU only, or by
// the fastest one. The table goes into checkpoints, so that a run goes on with what it began with.
class Products {
 public:
  void run(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& given, int64_t k) {
    ops::GemmOptions o = given;
    o.bias = bias_to_build_in(given.bias, c.dtype());
    // The library writes sums, and adds them to nothing.
    if (given.add_sums) o.sums = Tensor::empty_like(given.sums);
    const Fused fused = multiply(problem_of(c, a, b, o, k), c, a, b, o, given);
    finish(fused, c, a, given);
    if (given.add_sums && fused >= Fused::bias) ops::add(given.sums, given.sums, o.sums, 1, 1);
  }

  std::string choices() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::string> all = stored_;
    for (const auto& [problem, plan] : plans_) all[to_text(problem)] = plan.to_text();
    std::string text = heading();
    for (const auto& [problem, plan] : all) text.append(problem).append(1, ':').append(plan).append(1, '\n');
    return all.empty() ? "" : text;
  }

  bool use_choices(const std::string& text) {
    const std::lock_guard lock(mutex_);
    call_queue().flush();  // it may hold products by plans that go
    if (text.rfind(heading(), 0) != 0) return text.empty();
    for (size_t at = heading().size(); at < text.size();) {
      const size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      const size_t colon = line.find(':');
      stored_[line.substr(0, colon)] = line.substr(colon + 1);
      at = end + 1;
    }
    std::erase_if(plans_, [&](const auto& of) {
      const auto stored = stored_.find(to_text(of.first));
      return stored != stored_.end() && stored->second != of.second.to_text();
    });
    return true;
  }

  std::vector<std::string> time(const std::function<void()>& work, const std::function<double()>& now) {
    const Timing timing(*this, now);
    work();
    const std::lock_guard lock(mutex_);
    return timer_->lines();
  }

 private:
  // What a product does not do itself is done to its result, or beside it.
  static void finish(Fused fused, const Tensor& c, const Tensor& a, const ops::GemmOptions& o) {
    const Tensor& to = result_of(fused, c, o);
    if (o.bias.defined() && fused < Fused::bias) add_bias(to, o.bias);
    if (o.activation && fused < Fused::activation) ops::activation(c, to, *o.activation);
    if (o.gradient_of && fused < Fused::activation) ops::activation_backward(c, c, o.at, *o.gradient_of);
    if (o.sums.defined() && fused < Fused::bias) ops::sum_rows(o.sums, a, o.add_sums);
  }

  // cuBLASLt is not asked for sums of rows unless it is shown to be faster: what it saves is one pass over a matrix,
  // and its kernels with sums may be slower than others.
  static Fused usual(const Problem& problem) { return problem.sums ? Fused::nothing : Fused::activation; }

  // While it lives, products are timed. Those of before are forgotten.
  class Timing {
   public:
    Timing(Products& products, const std::function<double()>& now) : products_(products) {
      const std::lock_guard lock(products_.mutex_);
      call_queue().flush();
      products_.plans_.clear();
      products_.stored_.clear();
      products_.timer_.emplace(now);
    }
    ~Timing() {
      const std::lock_guard lock(products_.mutex_);
      products_.timer_.reset();
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

   private:
    Products& products_;
  };

  // cuBLASLt adds a bias of the type of the result, as weights are there beside it.
  static Tensor bias_to_build_in(const Tensor& bias, DType type) {
    if (!bias.defined() || bias.dtype() == type) return bias;
    const Tensor made = Tensor::empty(bias.shape(), type, bias.device());
    ops::convert(made, bias);
    return made;
  }

  static std::string heading() {
    return fmt::format("cublasLt {} on {}\n", cublasLtGetVersion(), device_backend(DeviceKind::cuda).name());
  }

  ProductPlan first_plan(const Problem& problem, Fused most, const ops::GemmOptions& o) {
    std::optional<ProductProposals> proposals = planner_.proposals(problem, most, o, 1);
    if (!proposals) throw DeviceError("cuBLASLt: knows no way to run this product");
    return std::move(proposals->plan);
  }

  // Returns what the product has done. given: with a bias of its own type, and sums that are added to.
  Fused multiply(const Problem& problem, const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& o,
                 const ops::GemmOptions& given) {
    const std::lock_guard lock(mutex_);
    ProductPlan* plan = &plan_of(problem, c, a, b, o, given);
    if (timer_) timer_->count(problem);
    // Whether the library takes a plan must be known before other calls follow.
    if (plan->has_run && call_queue().collects()) {
      const ProductCall call = planner_.call(*plan, c, a, b, o);
      call_queue().add("product", &call, sizeof call,
                       [this, call](cudaStream_t on) { check(planner_.run(call, on), "cublasLtMatmul"); });
      return plan->fused;
    }
    cublasStatus_t status = planner_.run(*plan, c, a, b, o);
    // The library may propose what it then refuses.
    while (is_refusal(status) && plan->fused != Fused::nothing) {
      ProductPlan next = first_plan(problem, less(plan->fused), o);
      plan = &plans_.insert_or_assign(problem, std::move(next)).first->second;
      status = planner_.run(*plan, c, a, b, o);
    }
    check(status, "cublasLtMatmul");
    plan->has_run = true;
    return plan->fused;
  }

  ProductPlan& plan_of(const Problem& problem, const Tensor& c, const Tensor& a, const Tensor& b,
                       const ops::GemmOptions& o, const ops::GemmOptions& given) {
    const auto found = plans_.find(problem);
    if (found != plans_.end()) return found->second;
    const auto stored = stored_.find(to_text(problem));
    std::optional<ProductPlan> plan;
    if (stored != stored_.end()) plan = planner_.stored_plan(problem, stored->second, o);
    if (!plan && timer_) {
      ops::GemmOptions beside = given;
      beside.sums = o.sums;
      beside.add_sums = false;
      const auto finish_timed = [&](Fused fused) {
        finish(fused, c, a, beside);
        if (given.add_sums && fused >= Fused::bias) ops::add(o.sums, o.sums, o.sums, 1, 1);
      };
      plan = timer_->fastest(planner_, problem, c, a, b, o, usual(problem), finish_timed);
    }
    if (!plan) plan = first_plan(problem, usual(problem), o);
    return plans_.emplace(problem, std::move(*plan)).first->second;
  }

  mutable std::mutex mutex_;
  ProductPlanner planner_;
  std::map<Problem, ProductPlan> plans_;
  std::map<std::string, std::string> stored_;  // problem -> choice, of the checkpoint the run goes on from
  std::optional<ProductTimer> timer_;          // while choices are made by timing
};

// Never destroyed: the driver may have shut down before statics are.
Products& products() {
  static Products& all = *new Products;
  return all;
}

double wall_clock() {
  device_backend(DeviceKind::cuda).synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

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

std::string product_choices() {
  return products().choices();
}

bool use_product_choices(const std::string& choices) {
  return products().use_choices(choices);
}

std::vector<std::string> time_products(const std::function<void()>& work, const std::function<double()>& now) {
  return products().time(work, now ? now : wall_clock);
}

void bind_gemm() {
  ops::gemm.bind(DeviceKind::cuda, gemm);
}

}  // namespace quire::cuda
