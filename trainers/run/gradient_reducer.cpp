#include "trainers/run/gradient_reducer.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

constexpr int64_t kBucket = int64_t{4} << 20;  // elements

}  // namespace

void reduce_gradients(const Tensor& gradients, Communicator& communicator) {
  if (communicator.size() == 1) return;
  QUIRE_CHECK(gradients.device() == kCpu, "gradients of {} ranks are on {}, where they cannot be reduced yet",
              communicator.size(), name_of(gradients.device().kind));
  for (int64_t begin = 0; begin < gradients.numel(); begin += kBucket) {
    const Tensor bucket = gradients.slice(0, begin, std::min(gradients.numel(), begin + kBucket));
    const auto count = static_cast<size_t>(bucket.numel());
    if (bucket.dtype() == DType::f64) {
      communicator.all_reduce_sum(std::span(bucket.data<double>(), count));
    } else {
      communicator.all_reduce_sum(std::span(bucket.data<float>(), count));
    }
  }
}

}  // namespace quire
