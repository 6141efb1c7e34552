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

ProductPlan ProductTimer::fastest(ProductPlanner& planner, const Problem& problem, const Tensor& c, const Tensor& a,
                                  const Tensor& b, const ops::GemmOptions& o) {
  const Tensor instead = o.accumulate ? product_scratch(c, c.device()) : Tensor();
  for (Fused most = Fused::activation;;) {
    ProductProposals proposals = planner.proposals(problem, most, o, kProposals);
    ProductPlan& plan = proposals.plan;
    std::vector<double> best(proposals.algorithms.size(), kNever);
    const auto run = [&](size_t i) {
      plan.algorithm = proposals.algorithms[i];
      return planner.run(plan, c, a, b, o, instead);
    };
    // The first run of each also loads its code, and counts for nothing.
    std::vector<size_t> runs;
    for (size_t i = 0; i < best.size(); ++i) {
      const cublasStatus_t status = run(i);
      if (is_refusal(status)) continue;
      check(status, "cublasLtMatmul");
      runs.push_back(i);
    }
    for (int turn = 0; turn < kTurns; ++turn) {
      for (const size_t i : runs) {
        const int calls =
            turn == 0 ? 1 : static_cast<int>(std::clamp(std::ceil(kSecondsOfTurn / best[i]), 1.0, kMostCalls));
        best[i] = std::min(best[i], seconds_of(calls, [&] { check(run(i), "cublasLtMatmul"); }));
      }
    }
    if (!runs.empty()) {
      const auto taken = static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
      plan.algorithm = proposals.algorithms[taken];
      timed_[problem] = {
          .taken = taken, .proposed = best.size(), .first = best[runs.front()], .taken_seconds = best[taken]};
      return std::move(plan);
    }
    if (plan.fused == Fused::nothing) throw DeviceError("cuBLASLt: runs none of the ways that it proposes");
    most = static_cast<Fused>(static_cast<int>(plan.fused) - 1);
  }
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
    if (i->second.taken > 0) changed.push_back(i);
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
    lines.push_back(fmt::format("products: {} calls of {}: number {} of {}, {:.4f} ms for {:.4f}", timed.calls,
                                describe(i->first), timed.taken + 1, timed.proposed, 1000 * timed.taken_seconds,
                                1000 * timed.first));
  }
  if (changed.size() > kMostLines) lines.push_back(fmt::format("products: and {} more", changed.size() - kMostLines));
  return lines;
}

}  // namespace quire::cuda
