// Which of cuBLASLt's proposals for a product is the fastest, found by running them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/product_plans.h"

namespace quire::cuda {

class ProductTimer {
 public:
  // now: seconds, as of when the device has done everything.
  explicit ProductTimer(std::function<double()> now) : now_(std::move(now)), begun_(now_()) {}

  // The fastest of up to eight proposals for each part that can be fused; finish does what is not. What the product
  // adds to stays as it is; everything else that it writes is written again when the product is run. usual: how much is
  // fused at most where nothing is timed.
  ProductPlan fastest(ProductPlanner& planner, const Problem& problem, const Tensor& c, const Tensor& a,
                      const Tensor& b, const ops::GemmOptions& o, Fused usual,
                      const std::function<void(Fused)>& finish);
  // A call of a product that was timed.
  void count(const Problem& problem);
  // What was chosen, for the log.
  std::vector<std::string> lines();

 private:
  struct Timed {
    int64_t calls = 0;
    size_t taken = 0, proposed = 0;
    bool otherwise_fused = false;
    double first = 0, taken_seconds = 0;
    double saved() const { return static_cast<double>(calls) * (first - taken_seconds); }
  };
  double seconds_of(int calls, const std::function<void()>& call);
  // The fastest of the algorithms, and its time and that of the first that runs; nothing where none does.
  struct Choice {
    size_t index;
    double seconds, first;
  };
  std::optional<Choice> choose(size_t count, const std::function<cublasStatus_t(size_t)>& run,
                               const std::function<void()>& finish);

  std::function<double()> now_;
  double begun_;
  std::map<Problem, Timed> timed_;
};

}  // namespace quire::cuda
