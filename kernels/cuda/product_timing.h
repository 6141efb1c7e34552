// Which of cuBLASLt's proposals for a product is the fastest, found by running them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/product_plans.h"

namespace quire::cuda {

class ProductTimer {
 public:
  // now: seconds, as of when the device has done everything.
  explicit ProductTimer(std::function<double()> now) : now_(std::move(now)), begun_(now_()) {}

  // The fastest of up to eight proposals with as much fused as the library runs. What the product adds to stays as it
  // is; everything else that it writes is written again when the product is run.
  ProductPlan fastest(ProductPlanner& planner, const Problem& problem, const Tensor& c, const Tensor& a,
                      const Tensor& b, const ops::GemmOptions& o);
  // A call of a product that was timed.
  void count(const Problem& problem);
  // What was chosen, for the log.
  std::vector<std::string> lines();

 private:
  struct Timed {
    int64_t calls = 0;
    size_t taken = 0, proposed = 0;
    double first = 0, taken_seconds = 0;
    double saved() const { return static_cast<double>(calls) * (first - taken_seconds); }
  };
  double seconds_of(int calls, const std::function<void()>& call);

  std::function<double()> now_;
  double begun_;
  std::map<Problem, Timed> timed_;
};

}  // namespace quire::cuda
