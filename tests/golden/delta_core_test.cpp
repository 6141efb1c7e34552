// Golden gated_delta and kda, cases of the core: the recurrence with all its gates, resets and states.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/delta.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/views.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class Core {
 public:
  explicit Core(GoldenCase& golden)
      : golden_(golden),
        rows_(golden.number("batch")),
        length_(golden.number("seq_len")),
        heads_(golden.number("n_head")),
        value_heads_(golden.number("n_v_head")),
        key_(golden.number("d_k")),
        value_(golden.number("d_v")),
        cells_(rows_ * length_) {}

  void run() {
    golden_.unused({"neg_eig", "tail_of", "tail_start"});
    const bool additive = golden_.text("rule") == "additive";
    const bool by_feature = golden_.text("gates") == "vector";
    std::map<std::string, Variable> x = golden_.leaves();
    Tape t;
    const auto gate = [&](const std::string& name) {
      return reshape(t, x.at(name), {cells_, value_heads_, x.at(name).shape().numel() / cells_ / value_heads_});
    };
    const Segments segments = find_segments();
    const double scale = golden_.real("scale");
    DeltaVariables in{.q = keys(t, x.at("q")),
                      .k = keys(t, x.at("k")),
                      .v = reshape(t, x.at("v"), {cells_, value_heads_, value_}),
                      .g = gate("g"),
                      .erase = additive ? Variable() : gate(by_feature ? "b" : "beta"),
                      .write = gate(by_feature ? "w" : "beta"),
                      .state = states(t, x, segments)};
    const DeltaResult y = delta_rule(t, in, table(segments), scale);
    std::vector<Variable> last;  // of each row
    for (size_t i = 0; i < segments.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const bool is_last = i + 1 == segments.size() || segments[i + 1].first / length_ != segments[i].first / length_;
      if (is_last) last.push_back(slice(t, y.last, 0, at, at + 1));
    }
    const Variable out = reshape(t, y.out, {rows_, length_, value_heads_, value_}), end = concatenate(t, last, 0);
    golden_.expect("out/o", out.value());
    golden_.expect("out/state_end", end.value());
    t.backward({{weighted_sum(t, out, golden_.get("grad_out/o")), 1.0},
                {weighted_sum(t, end, golden_.get("grad_out/state_end")), 1.0}});
    golden_.expect_gradients(x);
    if (golden_.has("out/wy_t")) terms_of_chunks(in, scale);
  }

 private:
  struct Part {
    int32_t first, count;
    bool carried;
  };
  using Segments = std::vector<Part>;

  Variable keys(Tape& t, const Variable& x) const {
    const bool normalised = golden_.flag("qk_norm");
    const double eps = golden_.real("qk_eps");
    return reshape(t, normalised ? l2_normalize(t, x, eps) : x, {cells_, heads_, key_});
  }

  Segments find_segments() const {
    const std::vector<int32_t> reset = golden_.get("in/reset").to_vector<int32_t>();
    Segments found;
    for (int64_t cell = 0; cell < cells_; ++cell) {
      const bool begins = reset[static_cast<size_t>(cell)] != 0, row_begins = cell % length_ == 0;
      if (begins || row_begins) found.push_back({static_cast<int32_t>(cell), 0, !begins});
      ++found.back().count;
    }
    return found;
  }

  static Tensor table(const Segments& segments) {
    std::vector<int32_t> values;
    for (const Part& segment : segments) values.insert(values.end(), {segment.first, segment.count});
    return Tensor::from(values, {static_cast<int64_t>(segments.size()), 2}, test_device());
  }

  Variable states(Tape& t, const std::map<std::string, Variable>& x, const Segments& segments) const {
    const bool given = golden_.flag("state_in");
    std::vector<Variable> all;
    for (const Part& segment : segments) {
      const int64_t row = segment.first / length_;
      if (given && segment.carried) {
        all.push_back(slice(t, x.at("state0"), 0, row, row + 1));
      } else {
        all.push_back(Variable::constant(zeros({1, value_heads_, key_, value_}, golden_.dtype())));
      }
    }
    return concatenate(t, all, 0);
  }

  static Tensor zeros(const Shape& shape, DType dtype) { return Tensor::zeros(shape, dtype, test_device()); }

  // The terms of the chunkwise form, from its definition in f64, with the states that the operation leaves.
  void terms_of_chunks(const DeltaVariables& in, double scale) {
    const int64_t chunk = golden_.number("chunk"), chunks = length_ / chunk;
    const auto of = [](const Variable& x) { return converted(x.value(), DType::f64).to_vector<double>(); };
    const std::vector<double> k = of(in.k), v = of(in.v), g = of(in.g), beta = of(in.write);
    const int64_t decays = in.g.dim(2), group = value_heads_ / heads_;
    std::vector<double> inverse(static_cast<size_t>(cells_ * value_heads_ * chunk));
    std::vector<double> w(static_cast<size_t>(cells_ * value_heads_ * key_));
    std::vector<double> u(static_cast<size_t>(cells_ * value_heads_ * value_)), corrected = u;
    std::vector<double> before(static_cast<size_t>(rows_ * chunks * value_heads_ * key_ * value_));
    Tensor state = in.state.value();
    for (int64_t n = 0; n < chunks; ++n) {
      Segments now;
      for (int64_t r = 0; r < rows_; ++r) {
        now.push_back({static_cast<int32_t>(r * length_ + n * chunk), static_cast<int32_t>(chunk), true});
      }
      const std::vector<double> s = converted(state, DType::f64).to_vector<double>();
      for (int64_t r = 0; r < rows_; ++r) {
        for (int64_t h = 0; h < value_heads_; ++h) {
          const auto cell = [&](int64_t i) { return r * length_ + n * chunk + i; };
          const auto key = [&](int64_t i, int64_t d) { return k[(cell(i) * heads_ + h / group) * key_ + d]; };
          const auto sum = [&](int64_t i, int64_t d) {  // of g up to token i
            double total = 0;
            for (int64_t m = 0; m <= i; ++m) total += g[(cell(m) * value_heads_ + h) * decays + (decays == 1 ? 0 : d)];
            return total;
          };
          const double* const old = s.data() + (r * value_heads_ + h) * key_ * value_;
          std::copy_n(old, key_ * value_, before.data() + ((r * chunks + n) * value_heads_ + h) * key_ * value_);
          double* const to = inverse.data() + ((r * chunks + n) * value_heads_ + h) * chunk * chunk;
          for (int64_t i = 0; i < chunk; ++i) {
            const double rate = beta[cell(i) * value_heads_ + h];
            to[i * chunk + i] = 1;
            for (int64_t j = 0; j < i; ++j) {
              double a = 0;
              for (int64_t d = 0; d < key_; ++d) a += rate * key(i, d) * key(j, d) * std::exp(sum(i, d) - sum(j, d));
              for (int64_t m = 0; m <= j; ++m) to[i * chunk + m] -= a * to[j * chunk + m];
            }
          }
          for (int64_t i = 0; i < chunk; ++i) {
            const int64_t line = cell(i) * value_heads_ + h;
            for (int64_t j = 0; j <= i; ++j) {
              double& rated = to[i * chunk + j];
              rated *= beta[cell(j) * value_heads_ + h];
              for (int64_t d = 0; d < key_; ++d) w[line * key_ + d] += rated * key(j, d) * std::exp(sum(j, d));
              for (int64_t e = 0; e < value_; ++e) {
                u[line * value_ + e] += rated * v[(cell(j) * value_heads_ + h) * value_ + e];
              }
            }
            for (int64_t e = 0; e < value_; ++e) {
              double& own = corrected[line * value_ + e] = u[line * value_ + e];
              for (int64_t d = 0; d < key_; ++d) own -= w[line * key_ + d] * old[d * value_ + e];
            }
          }
        }
      }
      Tape idle(false);
      DeltaVariables part = in;
      part.state = Variable::constant(state);
      state = delta_rule(idle, part, table(now), scale).last.value();
    }
    const auto expect = [&](const std::string& name, const std::vector<double>& got, const Shape& shape) {
      golden_.expect("out/" + name, converted(Tensor::from(got, shape, test_device()), golden_.dtype()));
    };
    expect("wy_t", inverse, {rows_, chunks, value_heads_, chunk, chunk});
    expect("wy_w", w, {rows_, length_, value_heads_, key_});
    expect("wy_u", u, {rows_, length_, value_heads_, value_});
    expect("v_new", corrected, {rows_, length_, value_heads_, value_});
    expect("chunk_state", before, {rows_, chunks, value_heads_, key_, value_});
  }

  GoldenCase& golden_;
  int64_t rows_, length_, heads_, value_heads_, key_, value_, cells_;
};

TEST(GoldenGatedDelta, Core) {
  GoldenFile(golden_folder(), "gated_delta").for_each_case("core", [](GoldenCase& golden) { Core(golden).run(); });
}

TEST(GoldenKda, Core) {
  GoldenFile(golden_folder(), "kda").for_each_case("core", [](GoldenCase& golden) { Core(golden).run(); });
}

}  // namespace
}  // namespace quire::test
