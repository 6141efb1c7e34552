#include "kernels/cuda/product_timing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/product_scratch.h"

namespace quire::cuda {

namespace {

constexpr int kProposals = 8;
constexpr double kNever = std::numeric_limits<double>::infinity();
// Products are timed in turns, so that a clock that changes changes for all, and the least time counts. A turn has as
// many calls as take so long.
constexpr int kTurns = 4;
constexpr double kSecondsOfTurn = 5e-4;
constexpr double kMostCalls = 20;

}  // namespace

double ProductTimer::seconds_of(int calls, const std::function<void()>& call) {
  const double begun = now_();
  for (int i = 0; i < calls; ++i) call();
  return (now_() - begun) / calls;
}

std::optional<ProductTimer::Choice> ProductTimer::choose(size_t count, const std::function<cublasStatus_t(size_t)>& run,
                                                         const std::function<void()>& finish) {
  std::vector<double> best(count, kNever);
  // The first run of each also loads its code, and counts for nothing.
  std::vector<size_t> running;
  for (size_t i = 0; i < count; ++i) {
    const cublasStatus_t status = run(i);
    if (is_refusal(status)) continue;
    check(status, "cublasLtMatmul");
    running.push_back(i);
  }
  if (running.empty()) return std::nullopt;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const size_t i : running) {
      const int calls =
          turn == 0 ? 1 : static_cast<int>(std::clamp(std::ceil(kSecondsOfTurn / best[i]), 1.0, kMostCalls));
      best[i] = std::min(best[i], seconds_of(calls, [&] {
                           check(run(i), "cublasLtMatmul");
                           finish();
                         }));
    }
  }
  const auto index = static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  return Choice{index, best[index], best[running.front()]};
}

ProductPlan ProductTimer::fastest(ProductPlanner& planner, const Problem& problem, const Tensor& c, const Tensor& a,
                                  const Tensor& b, const ops::GemmOptions& o, Fused usual,
                                  const std::function<void(Fused)>& finish) {
  const Tensor instead = o.accumulate ? product_scratch(c, c.device()) : Tensor();
  std::optional<ProductPlan> fastest;
  std::optional<Fused> usually_fused;
  Timed timed;
  for (Fused most = Fused::activation;;) {
    std::optional<ProductProposals> proposals = planner.proposals(problem, most, o, kProposals);
    if (!proposals) break;
    ProductPlan& plan = proposals->plan;
    const Fused fused = plan.fused;
    const auto run = [&](size_t i) {
      plan.algorithm = proposals->algorithms[i];
      return planner.run(plan, c, a, b, o, instead);
    };
    const std::optional<Choice> choice = choose(proposals->algorithms.size(), run, [&] { finish(fused); });
    if (choice) {
      if (!usually_fused && fused <= usual) {
        usually_fused = fused;
        timed.first = choice->first;
      }
      if (!fastest || choice->seconds < timed.taken_seconds) {
        plan.algorithm = proposals->algorithms[choice->index];
        timed.taken = choice->index;
        timed.proposed = proposals->algorithms.size();
        timed.taken_seconds = choice->seconds;
        fastest = std::move(plan);
      }
    }
    if (fused == Fused::nothing) break;
    most = less(fused);
  }
  if (!fastest) throw DeviceError("cuBLASLt: knows no way to run this product, or runs none that it proposes");
  timed.otherwise_fused = usually_fused && fastest->fused != *usually_fused;
  if (!usually_fused) timed.first = timed.taken_seconds;
  timed_[problem] = timed;
  return std::move(*fastest);
}

void ProductTimer::count(const Problem& problem) {
  const auto found = timed_.find(problem);
  if (found != timed_.end()) ++found->second.calls;
}

std::vector<std::string> ProductTimer::lines() {
  constexpr size_t kMostLines = 10;
  std::vector<std::map<Problem, Timed>::const_iterator> changed;
  double first = 0;
  double taken = 0;
  for (auto i = timed_.cbegin(); i != timed_.cend(); ++i) {
    first += static_cast<double>(i->second.calls) * i->second.first;
    taken += static_cast<double>(i->second.calls) * i->second.taken_seconds;
    if (i->second.taken > 0 || i->second.otherwise_fused) changed.push_back(i);
  }
  std::sort(changed.begin(), changed.end(),
            [](const auto& x, const auto& y) { return x->second.saved() > y->second.saved(); });
  std::vector<std::string> lines{fmt::format(
      "products: {} timed in {:.2f} s; {} go another way than the first that cuBLASLt proposes, {:.2f} ms a step for "
      "{:.2f}",
      timed_.size(), now_() - begun_, changed.size(), 1000 * taken, 1000 * first)};
  for (const auto& i : changed) {
    if (lines.size() > kMostLines) break;
    const Timed& timed = i->second;
    lines.push_back(fmt::format("products: {} calls of {}: number {} of {}{}, {:.4f} ms for {:.4f}", timed.calls,
                                describe(i->first), timed.taken + 1, timed.proposed,
                                timed.otherwise_fused ? " with other parts built in" : "", 1000 * timed.taken_seconds,
                                1000 * timed.first));
  }
  if (changed.size() > kMostLines) lines.push_back(fmt::format("products: and {} more", changed.size() - kMostLines));
  return lines;
}

}  // namespace quire::cuda
