// Stands in for cuDNN's attention (kernels/cuda/cudnn_plans.h): its documented mask and sums with plain loops, in f32.
// What cuDNN leaves undefined becomes NaN here: workspaces, and everything behind the lengths of a row.
#include "kernels/cuda/cudnn_plans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/check.h"
#include "tests/support/cuda_shim/device_memory.h"

namespace quire::cuda {

namespace {

constexpr int64_t kWorkspace = 256;
constexpr int64_t kRefusedQueries = 13;  // plans for so many are refused

class HostPlans final : public CudnnPlans {
 public:
  explicit HostPlans(const CudnnShape& shape) : s_(shape) {}

  int64_t forward_workspace() const override { return 0; }
  int64_t backward_workspace() const override { return kWorkspace; }

  void forward(const CudnnForward& x, void* workspace) override {
    const shim::DeviceMemoryOpen open;
    QUIRE_CHECK(workspace == nullptr, "cudnn stand-in: a workspace that nobody asked for");
    auto* out = static_cast<float*>(x.out);
    auto* lse = static_cast<float*>(x.lse);
    each_query(x.query_lengths, x.key_lengths, [&](int64_t r, int64_t h, int64_t i, int64_t low, int64_t high) {
      std::vector<double> p = logits(x.q, x.k, x.scale, r, h, i, low, high);
      const double top = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (double& value : p) sum += value = std::exp(value - top);
      lse[(r * s_.heads + h) * s_.queries + i] = static_cast<float>(top + std::log(sum));
      for (int64_t f = 0; f < s_.value_size; ++f) {
        double total = 0;
        for (int64_t j = low; j <= high; ++j) {
          total += p[static_cast<size_t>(j - low)] * key(x.v, r, j, h, s_.value_size)[f];
        }
        out[at(r, i, h, s_.value_size) + f] = static_cast<float>(total / sum);
      }
    });
  }

  void backward(const CudnnBackward& x, void* workspace) override {
    const shim::DeviceMemoryOpen open;
    QUIRE_CHECK(workspace != nullptr, "cudnn stand-in: no workspace");
    std::fill_n(static_cast<char*>(workspace), kWorkspace, '\xff');
    const int64_t keys = s_.rows * s_.keys * s_.kv_heads;
    std::vector<double> dk(static_cast<size_t>(keys * s_.size));
    std::vector<double> dv(static_cast<size_t>(keys * s_.value_size));
    auto* dq = static_cast<float*>(x.dq);
    each_query(x.query_lengths, x.key_lengths, [&](int64_t r, int64_t h, int64_t i, int64_t low, int64_t high) {
      std::vector<double> p = logits(x.q, x.k, x.scale, r, h, i, low, high);
      const double lse = static_cast<const float*>(x.lse)[(r * s_.heads + h) * s_.queries + i];
      const float* const q = static_cast<const float*>(x.q) + at(r, i, h, s_.size);
      const float* const out = static_cast<const float*>(x.out) + at(r, i, h, s_.value_size);
      const float* const dout = static_cast<const float*>(x.dout) + at(r, i, h, s_.value_size);
      double delta = 0;
      for (int64_t f = 0; f < s_.value_size; ++f) delta += static_cast<double>(out[f]) * dout[f];
      std::vector<double> sum(static_cast<size_t>(s_.size));
      for (int64_t j = low; j <= high; ++j) {
        const double weight = std::exp(p[static_cast<size_t>(j - low)] - lse);
        double dp = 0;
        for (int64_t f = 0; f < s_.value_size; ++f) {
          dp += static_cast<double>(dout[f]) * key(x.v, r, j, h, s_.value_size)[f];
          dv[key_at(r, j, h, s_.value_size) + static_cast<size_t>(f)] += weight * dout[f];
        }
        const double ds = weight * (dp - delta) * x.scale;
        for (int64_t f = 0; f < s_.size; ++f) {
          sum[static_cast<size_t>(f)] += ds * key(x.k, r, j, h, s_.size)[f];
          dk[key_at(r, j, h, s_.size) + static_cast<size_t>(f)] += ds * q[f];
        }
      }
      for (int64_t f = 0; f < s_.size; ++f)
        dq[at(r, i, h, s_.size) + f] = static_cast<float>(sum[static_cast<size_t>(f)]);
    });
    store(x.dk, dk, x.key_lengths, s_.size);
    store(x.dv, dv, x.key_lengths, s_.value_size);
  }

 private:
  int64_t at(int64_t r, int64_t i, int64_t h, int64_t width) const {
    return ((r * s_.queries + i) * s_.heads + h) * width;
  }
  size_t key_at(int64_t r, int64_t j, int64_t h, int64_t width) const {
    return static_cast<size_t>(((r * s_.keys + j) * s_.kv_heads + h / (s_.heads / s_.kv_heads)) * width);
  }
  const float* key(const void* tensor, int64_t r, int64_t j, int64_t h, int64_t width) const {
    return static_cast<const float*>(tensor) + key_at(r, j, h, width);
  }

  std::vector<double> logits(const void* q, const void* k, float scale, int64_t r, int64_t h, int64_t i, int64_t low,
                             int64_t high) const {
    std::vector<double> p;
    for (int64_t j = low; j <= high; ++j) {
      double sum = 0;
      for (int64_t f = 0; f < s_.size; ++f) {
        sum +=
            static_cast<double>(static_cast<const float*>(q)[at(r, i, h, s_.size) + f]) * key(k, r, j, h, s_.size)[f];
      }
      p.push_back(sum * scale);
    }
    return p;
  }

  template <typename Function>
  void each_query(const void* query_lengths, const void* key_lengths, Function&& function) const {
    QUIRE_CHECK((key_lengths != nullptr) == s_.lengths, "cudnn stand-in: lengths are for plans with lengths");
    for (int64_t r = 0; r < s_.rows; ++r) {
      const int64_t queries = s_.lengths ? static_cast<const int32_t*>(query_lengths)[r] : s_.queries;
      const int64_t keys = s_.lengths ? static_cast<const int32_t*>(key_lengths)[r] : s_.keys;
      QUIRE_CHECK(queries <= s_.queries && keys <= s_.keys && queries <= keys, "cudnn stand-in: {} queries, {} keys",
                  queries, keys);
      for (int64_t h = 0; h < s_.heads; ++h) {
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t high = i + keys - queries;
          function(r, h, i, s_.window < 0 ? 0 : std::max<int64_t>(0, high - s_.window), high);
        }
      }
    }
  }

  void store(void* to, const std::vector<double>& from, const void* key_lengths, int64_t width) const {
    const int64_t entry = s_.kv_heads * width;
    for (size_t i = 0; i < from.size(); ++i) {
      const auto line = static_cast<int64_t>(i) / entry;
      const bool undefined = s_.lengths && line % s_.keys >= static_cast<const int32_t*>(key_lengths)[line / s_.keys];
      static_cast<float*>(to)[i] = undefined ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(from[i]);
    }
  }

  CudnnShape s_;
};

}  // namespace

std::unique_ptr<CudnnPlans> make_cudnn_plans(const CudnnShape& shape) {
  if (shape.queries == kRefusedQueries) throw Error(ErrorKind::config, "cudnn stand-in: refused");
  return std::make_unique<HostPlans>(shape);
}

std::string cudnn_library_version() {
  return "9.99.0";
}

}  // namespace quire::cuda
