// The softmax mixer with its caches: what is carried must not change what is computed.
#include "layers/mixers/softmax_attention.h"

#include <gtest/gtest.h>

#include "layers/model/block.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/softmax_options.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kWidth = 12;

struct Setting {
  std::string name;
  Position position = Position::xl;
  std::optional<int64_t> window = {};
  bool attend_self = true;
  bool qk_norm = false;
  NormPlacement placement = NormPlacement::pre;
  int64_t key_heads = 3;
  ProjectionBias bias = ProjectionBias::none;
  RmsQkNorm rms_qk_norm = RmsQkNorm::none;
  std::optional<double> scale = {};
};

// Biases and gains begin at 0 and 1, with which a mistake would not show.
void draw_biases(const ParameterStore& store) {
  RandomTensors random(11);
  for (const ParameterStore::Entry& entry : store.entries()) {
    const bool is_bias = entry.name.ends_with(".bias") && entry.name.find("attention.") != std::string::npos;
    const bool is_gain = entry.name.ends_with("query_norm.weight") || entry.name.ends_with("key_norm.weight");
    if (is_bias || is_gain) store.value(entry).copy_from(random.normal(entry.shape));
  }
}

// One block whose weights are drawn from the same seed whatever its cache is.
class OneBlock {
 public:
  OneBlock(const Setting& setting, CarryKind cache, int64_t length, int64_t segment) {
    ModelConfig model;
    model.width = kWidth;
    model.layers = 1;
    model.heads = 3;
    model.key_heads = setting.key_heads;
    model.mlp.hidden = 7;
    model.position.kind = setting.position;
    model.norm.placement = setting.placement;
    model.initialization.std = 0.5;
    softmax_options(model).window = setting.window;
    softmax_options(model).attend_self = setting.attend_self;
    softmax_options(model).qk_norm = setting.qk_norm;
    softmax_options(model).bias = setting.bias;
    softmax_options(model).rms_qk_norm = setting.rms_qk_norm;
    softmax_options(model).scale = setting.scale;
    model.position.t5 = {8, 16};
    softmax_options(model).carry.kind = cache;
    if (cache != CarryKind::none) softmax_options(model).carry.length = length;
    Declarations declared;
    block_ = std::move(make_blocks(Scope(store_, declared, DType::f64), model, 0, 1)[0]);
    store_.allocate(DType::f64, kCpu, 3);
    draw_biases(store_);
    pool_ = std::make_unique<StatePool>(declared.state, kRows, segment, DType::f64, kCpu);
  }

  Tensor operator()(const Batch& batch, const Tensor& x) {
    pool_->begin_step(batch);
    const StateView state = pool_->view(0, kRows);
    Tape tape(false);
    const Tensor y = (*block_)({.tape = tape, .batch = batch, .state = state}, Variable::constant(x)).value();
    pool_->commit();
    return y;
  }

 private:
  ParameterStore store_;
  std::unique_ptr<Block> block_;
  std::unique_ptr<StatePool> pool_;
};

// Tokens [begin, end) of every row.
Tensor tokens_of(const Tensor& x, int64_t begin, int64_t end) {
  return packed(x.slice(1, begin, end));
}

class Mixer : public ::testing::TestWithParam<Setting> {};

// A cache that holds all that a window reaches makes segments of any length compute the same.
TEST_P(Mixer, SegmentsComputeWhatTheWholeComputes) {
  const int64_t total = 23;
  const Tensor x = RandomTensors(1).normal({kRows, total, kWidth});
  OneBlock whole(GetParam(), CarryKind::none, 0, total);
  const Tensor expected = whole(one_segment(kRows, total, {1, 1}), x);
  for (const CarryKind cache : {CarryKind::hidden, CarryKind::kv}) {
    OneBlock parts(GetParam(), cache, GetParam().window.value_or(total), 9);
    int64_t begin = 0;
    for (const int64_t count : {9, 1, 2, 8, 3}) {
      const Tensor y = parts(one_segment(kRows, count, {begin == 0, begin == 0}), tokens_of(x, begin, begin + count));
      EXPECT_LE(relative_error(y, tokens_of(expected, begin, begin + count)), 1e-12)
          << (cache == CarryKind::kv ? "kv" : "hidden") << " from token " << begin;
      begin += count;
    }
  }
}

// Transformer-XL's two caches agree while the weights do not change, shorter than the history or not.
TEST_P(Mixer, HiddenStatesAndKeysAgree) {
  const Tensor x = RandomTensors(2).normal({kRows, 20, kWidth});
  OneBlock hidden(GetParam(), CarryKind::hidden, 3, 5);
  OneBlock keys(GetParam(), CarryKind::kv, 3, 5);
  for (int64_t begin = 0; begin < 20; begin += 5) {
    const Batch batch = one_segment(kRows, 5, {begin == 0, begin == 10});  // row 1 turns to a new document
    const Tensor part = tokens_of(x, begin, begin + 5);
    EXPECT_LE(relative_error(hidden(batch, part), keys(batch, part)), 1e-12) << "from token " << begin;
  }
}

// Two documents in one row: the second is computed as if it stood alone, and it is what the row carries on.
TEST_P(Mixer, DocumentsInARowAreIndependent) {
  const Tensor x = RandomTensors(3).normal({kRows, 14, kWidth});
  for (const CarryKind cache : {CarryKind::hidden, CarryKind::kv}) {
    OneBlock joined(GetParam(), cache, 6, 9);
    OneBlock alone(GetParam(), cache, 6, 9);
    const Batch both = batch_of({{0, 0, 0, 0, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1, 1}}, {1, 1});
    const Tensor first = joined(both, tokens_of(x, 0, 9));
    const Tensor second = alone(one_segment(kRows, 5, {1, 1}), tokens_of(x, 4, 9));
    EXPECT_LE(relative_error(tokens_of(first, 4, 9), second), 1e-12);
    const Batch next = one_segment(kRows, 5, {0, 0});
    EXPECT_LE(relative_error(joined(next, tokens_of(x, 9, 14)), alone(next, tokens_of(x, 9, 14))), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Mixer,
    ::testing::Values(Setting{.name = "xl"}, Setting{.name = "xl_window", .window = 6},
                      Setting{.name = "xl_post_norm", .window = 7, .placement = NormPlacement::post},
                      Setting{.name = "t5", .position = Position::t5},
                      Setting{.name = "t5_window_no_self", .position = Position::t5, .window = 6, .attend_self = false},
                      Setting{.name = "t5_qk_norm", .position = Position::t5, .window = 6, .qk_norm = true},
                      Setting{.name = "rope", .position = Position::rope},
                      Setting{.name = "rope_window_grouped", .position = Position::rope, .window = 6, .key_heads = 1},
                      Setting{.name = "rope_qk_norm", .position = Position::rope, .window = 7, .qk_norm = true},
                      Setting{.name = "rope_bias_rms_by_head",
                              .position = Position::rope,
                              .window = 6,
                              .key_heads = 1,
                              .bias = ProjectionBias::qkv,
                              .rms_qk_norm = RmsQkNorm::head},
                      Setting{.name = "xl_bias_rms_of_all_heads_scaled",
                              .window = 7,
                              .bias = ProjectionBias::all,
                              .rms_qk_norm = RmsQkNorm::all,
                              .scale = 0.7},
                      Setting{.name = "alibi_window", .position = Position::alibi, .window = 6},
                      Setting{.name = "xl_grouped", .window = 7, .key_heads = 1},
                      Setting{.name = "no_position", .position = Position::none, .window = 6}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace quire::test
