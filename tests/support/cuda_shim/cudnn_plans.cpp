// Stands in for cuDNN's attention (kernels/cuda/cudnn/cudnn_plans.h): its documented mask and sums with plain loops, in
// f32. What cuDNN leaves undefined becomes NaN here: workspaces, and everything behind the lengths of a row. Positions
// of no sequence of a ragged plan are not written, and must be numbers where cuDNN may read them.
#include "kernels/cuda/cudnn/cudnn_plans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/check.h"
#include "kernels/cuda/stream.h"

namespace quire::cuda {

namespace {

constexpr int64_t kWorkspace = 256;
constexpr int64_t kRefusedQueries = 13;  // plans for so many are refused

const float* floats(const void* tensor) {
  return static_cast<const float*>(tensor);
}

void check_numbers(const char* name, const void* tensor, int64_t count) {
  const float* const values = floats(tensor);
  QUIRE_CHECK(std::all_of(values, values + count, [](float x) { return std::isfinite(x); }),
              "cudnn stand-in: {} is no number somewhere", name);
}

// The offsets of a sequence in each tensor, in elements, and its length. If the plan is not ragged, a row is one
// sequence.
struct Sequence {
  int64_t q, k, v, out, lse;
  int64_t queries, keys;
};

class HostPlans final : public CudnnPlans {
 public:
  explicit HostPlans(const CudnnShape& shape) : s_(shape) {}

  int64_t forward_workspace() const override { return 0; }
  int64_t backward_workspace() const override { return kWorkspace; }

  void forward(const CudnnForward& x, void* workspace) override {
    shim::on_stream(stream(), [this, x, workspace] { attend(x, workspace); });
  }
  void backward(const CudnnBackward& x, void* workspace) override {
    shim::on_stream(stream(), [this, x, workspace] { differentiate(x, workspace); });
  }

 private:
  void attend(const CudnnForward& x, void* workspace) {
    const shim::DeviceMemoryOpen open;
    QUIRE_CHECK(workspace == nullptr, "cudnn stand-in: a workspace that nobody asked for");
    check_keys(x.k, x.v);
    auto* out = static_cast<float*>(x.out);
    auto* lse = static_cast<float*>(x.lse);
    each_query(x.sequences, [&](const Sequence& at, int64_t h, int64_t i, int64_t low, int64_t high) {
      std::vector<double> p = logits(x.q, x.k, x.scale, at, h, i, low, high);
      const double top = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (double& value : p) sum += value = std::exp(value - top);
      lse[lse_at(at, h, i)] = static_cast<float>(top + std::log(sum));
      for (int64_t f = 0; f < s_.value_size; ++f) {
        double total = 0;
        for (int64_t j = low; j <= high; ++j) {
          total += p[static_cast<size_t>(j - low)] * floats(x.v)[at.v + key_at(j, h, s_.value_size) + f];
        }
        out[at.out + query_at(i, h, s_.value_size) + f] = static_cast<float>(total / sum);
      }
    });
  }

  void differentiate(const CudnnBackward& x, void* workspace) {
    const shim::DeviceMemoryOpen open;
    QUIRE_CHECK(workspace != nullptr, "cudnn stand-in: no workspace");
    std::fill_n(static_cast<char*>(workspace), kWorkspace, '\xff');
    check_keys(x.k, x.v);
    const int64_t queries = s_.rows * s_.queries * s_.heads;
    check_numbers("q", x.q, queries * s_.size);
    check_numbers("dout", x.dout, queries * s_.value_size);
    check_numbers("lse", x.lse, queries);
    const int64_t keys = s_.rows * s_.keys * s_.kv_heads;
    std::vector<double> dk(static_cast<size_t>(keys * s_.size));
    std::vector<double> dv(static_cast<size_t>(keys * s_.value_size));
    auto* dq = static_cast<float*>(x.dq);
    each_query(x.sequences, [&](const Sequence& at, int64_t h, int64_t i, int64_t low, int64_t high) {
      std::vector<double> p = logits(x.q, x.k, x.scale, at, h, i, low, high);
      const double lse = floats(x.lse)[lse_at(at, h, i)];
      const float* const q = floats(x.q) + at.q + query_at(i, h, s_.size);
      const float* const out = floats(x.out) + at.out + query_at(i, h, s_.value_size);
      const float* const dout = floats(x.dout) + at.out + query_at(i, h, s_.value_size);
      double delta = 0;
      for (int64_t f = 0; f < s_.value_size; ++f) delta += static_cast<double>(out[f]) * dout[f];
      std::vector<double> sum(static_cast<size_t>(s_.size));
      for (int64_t j = low; j <= high; ++j) {
        const double weight = std::exp(p[static_cast<size_t>(j - low)] - lse);
        const int64_t of_value = at.v + key_at(j, h, s_.value_size);
        const int64_t of_key = at.k + key_at(j, h, s_.size);
        double dp = 0;
        for (int64_t f = 0; f < s_.value_size; ++f) {
          dp += static_cast<double>(dout[f]) * floats(x.v)[of_value + f];
          dv[static_cast<size_t>(of_value + f)] += weight * dout[f];
        }
        const double ds = weight * (dp - delta) * x.scale;
        for (int64_t f = 0; f < s_.size; ++f) {
          sum[static_cast<size_t>(f)] += ds * floats(x.k)[of_key + f];
          dk[static_cast<size_t>(of_key + f)] += ds * q[f];
        }
      }
      for (int64_t f = 0; f < s_.size; ++f) {
        dq[at.q + query_at(i, h, s_.size) + f] = static_cast<float>(sum[static_cast<size_t>(f)]);
      }
    });
    for (int64_t n = 0; n < s_.rows; ++n) {
      const Sequence at = sequence(x.sequences, n);
      store(x.dk, dk, at.k, at.keys, s_.size);
      store(x.dv, dv, at.v, at.keys, s_.value_size);
    }
  }

  int64_t query_at(int64_t i, int64_t h, int64_t width) const { return (i * s_.heads + h) * width; }
  int64_t key_at(int64_t j, int64_t h, int64_t width) const {
    return (j * s_.kv_heads + h / (s_.heads / s_.kv_heads)) * width;
  }
  int64_t lse_at(const Sequence& at, int64_t h, int64_t i) const {
    return at.lse + (s_.ragged ? i * s_.heads + h : h * s_.queries + i);
  }

  // Keys that are masked are multiplied by zero.
  void check_keys(const void* k, const void* v) const {
    const int64_t keys = s_.rows * s_.keys * s_.kv_heads;
    check_numbers("k", k, keys * s_.size);
    check_numbers("v", v, keys * s_.value_size);
  }

  std::vector<double> logits(const void* q, const void* k, float scale, const Sequence& at, int64_t h, int64_t i,
                             int64_t low, int64_t high) const {
    std::vector<double> p;
    for (int64_t j = low; j <= high; ++j) {
      double sum = 0;
      for (int64_t f = 0; f < s_.size; ++f) {
        sum += static_cast<double>(floats(q)[at.q + query_at(i, h, s_.size) + f]) *
               floats(k)[at.k + key_at(j, h, s_.size) + f];
      }
      p.push_back(sum * scale);
    }
    return p;
  }

  static int64_t length(const void* lengths, int64_t n) { return static_cast<const int32_t*>(lengths)[n]; }

  Sequence sequence(const CudnnSequences& x, int64_t n) const {
    QUIRE_CHECK((x.key_lengths != nullptr) == s_.lengths && (x.q != nullptr) == s_.ragged,
                "cudnn stand-in: lengths and offsets are for plans with them");
    Sequence at{.q = n * s_.queries * s_.heads * s_.size,
                .k = n * s_.keys * s_.kv_heads * s_.size,
                .v = n * s_.keys * s_.kv_heads * s_.value_size,
                .out = n * s_.queries * s_.heads * s_.value_size,
                .lse = n * s_.queries * s_.heads,
                .queries = s_.lengths ? length(x.query_lengths, n) : s_.queries,
                .keys = s_.lengths ? length(x.key_lengths, n) : s_.keys};
    QUIRE_CHECK(at.queries <= s_.queries && at.keys <= s_.keys && at.queries <= at.keys,
                "cudnn stand-in: {} queries, {} keys", at.queries, at.keys);
    if (!s_.ragged) return at;
    const auto begin_of = [&](const void* offsets, int64_t count, int64_t entry, int64_t positions) {
      QUIRE_CHECK(reinterpret_cast<uintptr_t>(offsets) % 16 == 0, "cudnn stand-in: offsets at no multiple of 16 bytes");
      const auto* const begins = static_cast<const int64_t*>(offsets);
      QUIRE_CHECK(begins[n] >= 0 && begins[n] % entry == 0 && begins[n] + count * entry <= begins[n + 1] &&
                      begins[s_.rows] <= positions * entry,
                  "cudnn stand-in: sequence {} of {} positions begins at {}, the next one at {}", n, count, begins[n],
                  begins[n + 1]);
      return begins[n];
    };
    at.q = begin_of(x.q, at.queries, s_.heads * s_.size, s_.rows * s_.queries);
    at.out = begin_of(x.out, at.queries, s_.heads * s_.value_size, s_.rows * s_.queries);
    at.lse = begin_of(x.lse, at.queries, s_.heads, s_.rows * s_.queries);
    at.k = begin_of(x.k, at.keys, s_.kv_heads * s_.size, s_.rows * s_.keys);
    at.v = begin_of(x.v, at.keys, s_.kv_heads * s_.value_size, s_.rows * s_.keys);
    return at;
  }

  template <typename Function>
  void each_query(const CudnnSequences& sequences, Function&& function) const {
    for (int64_t n = 0; n < s_.rows; ++n) {
      const Sequence at = sequence(sequences, n);
      for (int64_t h = 0; h < s_.heads; ++h) {
        for (int64_t i = 0; i < at.queries; ++i) {
          const int64_t high = i + at.keys - at.queries;
          function(at, h, i, s_.window < 0 ? 0 : std::max<int64_t>(0, high - s_.window), high);
        }
      }
    }
  }

  void store(void* to, const std::vector<double>& from, int64_t begin, int64_t keys, int64_t width) const {
    const int64_t entry = s_.kv_heads * width;
    for (int64_t i = 0; i < (s_.ragged ? keys : s_.keys) * entry; ++i) {
      static_cast<float*>(to)[begin + i] = i < keys * entry ? static_cast<float>(from[static_cast<size_t>(begin + i)])
                                                            : std::numeric_limits<float>::quiet_NaN();
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
