// The softmax mixer against plain loops over a whole document, with rotary angles of absolute positions: rotary
// positions, ALiBi, grouped heads, normalised queries and keys.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/mixers/softmax_attention.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/parameters.h"
#include "tests/support/softmax_options.h"

namespace quire::test {
namespace {

constexpr int64_t kWidth = 12;
constexpr int64_t kTokens = 29;
constexpr double kBase = 37;

struct Setting {
  std::string name;
  Position position = Position::none;
  int64_t heads = 2;
  int64_t key_heads = 2;
  int64_t head_size = 4;
  std::optional<int64_t> dims = {};
  std::optional<int64_t> window = {};
  bool attend_self = true;
  bool qk_norm = false;
};

ModelConfig model_of(const Setting& s) {
  ModelConfig model;
  model.width = kWidth;
  model.layers = 1;
  model.heads = s.heads;
  model.key_heads = s.key_heads;
  model.head_size = s.head_size;
  model.position.kind = s.position;
  model.initialization.std = 0.6;
  softmax_options(model).window = s.window;
  softmax_options(model).attend_self = s.attend_self;
  softmax_options(model).qk_norm = s.qk_norm;
  model.position.rope = {kBase, s.dims};
  softmax_options(model).carry.kind = CarryKind::kv;
  softmax_options(model).carry.length = s.window.value_or(kTokens);
  return model;
}

using Vector = std::vector<double>;

class Reference {
 public:
  Reference(const Setting& setting, const ParameterStore& store) : s_(setting), store_(store) {}

  // z [N, E] of one document whose first token stands at `origin`.
  Vector operator()(const Vector& z, int64_t origin) const {
    const int64_t count = static_cast<int64_t>(z.size()) / kWidth;
    Vector out(z.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
      Vector mixed;
      for (int64_t h = 0; h < s_.heads; ++h) {
        const Vector head = attend(z, i, h, origin);
        mixed.insert(mixed.end(), head.begin(), head.end());
      }
      const Vector y = project("out", mixed, 0, kWidth);
      std::copy(y.begin(), y.end(), out.begin() + i * kWidth);
    }
    return out;
  }

 private:
  Vector parameter(const std::string& name) const {
    return parameter_named(store_, "attention." + name).variable.value().to_vector<double>();
  }
  // Rows [first, first + count) of a weight times x.
  Vector project(const std::string& name, const Vector& x, int64_t first, int64_t count) const {
    const Vector w = parameter(name + ".weight");
    Vector y(static_cast<size_t>(count), 0);
    for (int64_t o = 0; o < count; ++o) {
      for (size_t i = 0; i < x.size(); ++i) {
        y[static_cast<size_t>(o)] += w[static_cast<size_t>(first + o) * x.size() + i] * x[i];
      }
    }
    return y;
  }
  // Head h of query, key or value of a token.
  Vector head_of(const std::string& name, const Vector& z, int64_t token, int64_t h) const {
    return project(name, Vector(z.begin() + token * kWidth, z.begin() + (token + 1) * kWidth), h * s_.head_size,
                   s_.head_size);
  }
  Vector normalised_and_rotated(Vector x, int64_t position) const {
    if (s_.qk_norm) {
      double square = 1e-6;
      for (const double value : x) square += value * value;
      for (double& value : x) value /= std::sqrt(square);
    }
    if (s_.position != Position::rope) return x;
    const auto pairs = static_cast<size_t>(s_.dims.value_or(s_.head_size) / 2);
    for (size_t i = 0; i < pairs; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(kBase, -static_cast<double>(i) / static_cast<double>(pairs));
      const double a = x[i];
      const double b = x[i + pairs];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + pairs] = a * std::sin(angle) + b * std::cos(angle);
    }
    return x;
  }
  double logit(const Vector& z, int64_t i, int64_t j, int64_t h, int64_t origin) const {
    const int64_t key_head = h / (s_.heads / s_.key_heads);
    const Vector q = normalised_and_rotated(head_of("query", z, i, h), origin + i);
    const Vector k = normalised_and_rotated(head_of("key", z, j, key_head), origin + j);
    double sum = 0;
    for (size_t d = 0; d < q.size(); ++d) sum += q[d] * k[d];
    if (!s_.qk_norm) sum /= std::sqrt(static_cast<double>(s_.head_size));
    if (s_.position == Position::alibi) {
      sum -=
          std::pow(2.0, -8.0 * static_cast<double>(h + 1) / static_cast<double>(s_.heads)) * static_cast<double>(i - j);
    }
    return s_.qk_norm ? sum * std::abs(parameter("scale")[static_cast<size_t>(h)]) : sum;
  }
  Vector attend(const Vector& z, int64_t i, int64_t h, int64_t origin) const {
    Vector out(static_cast<size_t>(s_.head_size), 0);
    double total = 0;
    for (int64_t j = 0; j <= (s_.attend_self ? i : i - 1); ++j) {
      if (s_.window && i - j > *s_.window) continue;
      const double weight = std::exp(logit(z, i, j, h, origin));
      total += weight;
      const Vector v = head_of("value", z, j, h / (s_.heads / s_.key_heads));
      for (size_t d = 0; d < out.size(); ++d) out[d] += weight * v[d];
    }
    if (total > 0) {
      for (double& value : out) value /= total;
    }
    return out;
  }

  const Setting& s_;
  const ParameterStore& store_;
};

class Positions : public ::testing::TestWithParam<Setting> {
 protected:
  Positions() : model_(model_of(GetParam())) {
    Declarations declared;
    const LayerConfig layer = model_.layer_configs()[0];
    const Place place{model_, layer, layer.attention.mechanism.options};
    attention_ =
        std::make_unique<SoftmaxAttention>(Scope(store_, declared, DType::f64, "attention"), place, Surroundings{});
    store_.allocate(DType::f64, kCpu, 3);
    for (int64_t h = 0; softmax_options(model_).qk_norm && h < model_.heads; ++h) {
      // Learned scales: their size counts.
      parameter_named(store_, "attention.scale").variable.value().data<double>()[h] = h % 2 == 0 ? 3.5 : -2.0;
    }
    pool_ = std::make_unique<StatePool>(declared.state, 1, kTokens, DType::f64, kCpu);
  }

  Vector read(const Batch& batch, const Vector& z) {
    pool_->begin_step(batch);
    const StateView state = pool_->view(0, 1);
    Tape tape(false);
    const Variable x = Variable::constant(Tensor::from(z, {1, batch.length, kWidth}));
    const Vector y =
        (*attention_)({.tape = tape, .batch = batch, .state = state}, {x, nullptr}).value().to_vector<double>();
    pool_->commit();
    return y;
  }

  ModelConfig model_;
  ParameterStore store_;
  std::unique_ptr<SoftmaxAttention> attention_;
  std::unique_ptr<StatePool> pool_;
};

void expect_near(const Vector& got, const Vector& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << what << ", value " << i;
}

TEST_P(Positions, SegmentsEqualAbsolutePositions) {
  const Vector z = RandomTensors(1).normal({kTokens, kWidth}).to_vector<double>();
  for (const int64_t origin : {0, 4321}) {  // only differences of positions matter
    const Vector expected = Reference(GetParam(), store_)(z, origin);
    int64_t begin = 0;
    Vector got;
    for (const int64_t count : {7, 1, 13, 8}) {
      const Vector part(z.begin() + begin * kWidth, z.begin() + (begin + count) * kWidth);
      const Vector y = read(one_segment(1, count, {static_cast<uint8_t>(begin == 0 ? 1 : 0)}), part);
      got.insert(got.end(), y.begin(), y.end());
      begin += count;
    }
    expect_near(got, expected, "origin " + std::to_string(origin));
  }
}

TEST_P(Positions, DocumentsInsideARowBeginAnew) {
  const Vector z = RandomTensors(2).normal({9, kWidth}).to_vector<double>();
  const Vector got = read(batch_of({{0, 0, 0, 1, 1, 1, 1, 1, 1}}, {1}), z);
  const auto cut = static_cast<std::ptrdiff_t>(3 * kWidth);
  const Reference reference(GetParam(), store_);
  expect_near(Vector(got.begin(), got.begin() + cut), reference(Vector(z.begin(), z.begin() + cut), 0), "first");
  expect_near(Vector(got.begin() + cut, got.end()), reference(Vector(z.begin() + cut, z.end()), 0), "second");
}

INSTANTIATE_TEST_SUITE_P(
    , Positions,
    ::testing::Values(Setting{.name = "none_grouped", .heads = 4}, Setting{.name = "rope", .position = Position::rope},
                      Setting{.name = "rope_window", .position = Position::rope, .window = 6, .attend_self = false},
                      Setting{.name = "rope_some_features", .position = Position::rope, .head_size = 5, .dims = 2},
                      Setting{.name = "rope_grouped_normalised",
                              .position = Position::rope,
                              .heads = 6,
                              .key_heads = 3,
                              .window = 9,
                              .qk_norm = true},
                      Setting{.name = "alibi", .position = Position::alibi, .window = 11},
                      Setting{.name = "alibi_three_heads", .position = Position::alibi, .heads = 3, .key_heads = 1},
                      Setting{.name = "alibi_normalised", .position = Position::alibi, .heads = 4, .qk_norm = true}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace quire::test
