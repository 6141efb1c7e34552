// Golden gau_block: the mixer of Transformer-VQ with its normalisation and residual sum as a block without a
// feed-forward layer, with carried state, commitment loss and one update of the codebook.
//
// The mask of the cases takes tokens out of the commitment and the codebook and nothing else, while a token that is
// padding here is not attended to either. Commitment and statistics belong to single tokens, so they are taken from a
// second pass in which the masked tokens are padding.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/vq.h"
#include "kernels/optimizer.h"
#include "layers/mixers/codebook.h"
#include "layers/model/block.h"
#include "layers/state/state_pool.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/state_logs.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

ModelConfig model_config(const GoldenCase& golden) {
  ModelConfig model;
  model.width = golden.number("d_model");
  model.layers = 1;
  model.heads = golden.number("n_head");
  model.key_heads = golden.number("n_kv_head");
  model.head_size = golden.number("d_k");
  model.norm.kind = NormKind::rms_bias;
  model.norm.eps = golden.real("ln_eps");
  model.mlp.kind = MlpKind::none;
  model.position.kind = Position::xl;
  model.attention.mechanism = KindConfig(Role::mixer, "vq");
  model.position.xl = {.share_biases = false, .clamp = 0, .base = golden.real("pe_lam")};
  auto& vq = model.attention.mechanism.options.get<VqConfig>();
  vq.codes = golden.number("n_code");
  vq.block = golden.number("block_len");
  vq.window = golden.number("mem_len");
  vq.value_size = golden.number("d_v");
  vq.gate = golden.flag("gated");
  vq.activation = golden.flag("v_silu") ? VqActivation::silu : VqActivation::none;
  vq.compressive_cache = golden.flag("agg_cache");
  vq.cache_gradient = golden.flag("grad_thru_cache");
  vq.commitment = golden.real("commit_weight");
  vq.codebook.decay = golden.real("gamma");
  vq.codebook.floor = golden.real("count_floor");
  return model;
}

const std::map<std::string, std::string>& golden_names() {
  static const std::map<std::string, std::string> names{
      {"attention_norm.weight", "ln_g"},
      {"attention_norm.bias", "ln_b"},
      {"attention.query.weight", "w_q"},
      {"attention.key.weight", "w_k"},
      {"attention.value.weight", "w_v"},
      {"attention.gate.weight", "w_g"},
      {"attention.out.weight", "w_o"},
      {"attention.relative.weight", "w_r"},
      {"attention.u", "u"},
      {"attention.v", "v"},
      {"attention.codebook.sum", "c_sum"},
      {"attention.codebook.count", "c_count"},
  };
  return names;
}

std::unique_ptr<Block> make_block(const Scope& scope, const ModelConfig& model) {
  const LayerConfig layer = model.layer_configs()[0];
  const Place place{model, layer, layer.attention.mechanism.options};
  const Surroundings around;
  return std::make_unique<Block>(scope, model, mixer_and_mlp(place, around));
}

Codebook& codebook_of(const Declarations& declared) {
  return static_cast<Codebook&>(*declared.learners.at(0));
}

class Unit {
 public:
  explicit Unit(GoldenCase& golden)
      : golden_(golden),
        model_(model_config(golden)),
        rows_(golden.number("batch")),
        tokens_(golden.number("seq_len")),
        window_(golden.number("mem_len")),
        scope_(store_, declared_, golden.dtype()),
        block_(make_block(scope_, model_)) {
    store_.allocate(golden.dtype(), test_device(), 1);
    for (const ParameterStore::Entry& entry : store_.entries()) {
      const Tensor value = golden.get("in/" + golden_names().at(entry.name));
      entry.variable.value().copy_from(value.reshape(entry.shape));
    }
    for (const ParameterStore::Buffer& buffer : store_.buffers()) {
      buffer.value.copy_from(golden.get("in/" + golden_names().at(buffer.name)));
    }
  }

  void run() {
    const Tensor y = forward(golden_.get("grad_out/y"), false);
    golden_.expect("out/y", y);
    expect_state();
    expect_parts();
    read_mixed();
    // Commitment and codebook.
    Codebook& codebook = codebook_of(declared_);
    codebook.begin_step({.key = {}, .update = 2, .rows = rows_, .length = tokens_});
    const Tensor none = Tensor::zeros(y.shape(), y.dtype(), y.device());
    forward(none, true);
    golden_.expect("out/commit_loss", commitment());
    codebook.update(Tensor::from(std::vector<double>{1, 1}, {2}, test_device()));
    for (const ParameterStore::Buffer& buffer : store_.buffers()) {
      golden_.expect("out/" + golden_names().at(buffer.name) + "_next", buffer.value);
    }
    golden_.expect("grad/x", dx_);
    for (const ParameterStore::Entry& entry : store_.entries()) {
      const std::string name = golden_names().at(entry.name);
      golden_.expect("grad/" + name,
                     store_.slice(store_.gradients(), entry).reshape(golden_.get("in/" + name).shape()));
    }
  }

 private:
  // One pass over the case's input from its state; gradients add up. Commitment takes part when `masked` is true, and
  // masked tokens are padding then.
  Tensor forward(const Tensor& dy, bool masked) {
    const std::vector<int32_t> mask = golden_.get("in/mask").to_vector<int32_t>();
    std::vector<std::vector<int32_t>> segments(static_cast<size_t>(rows_));
    for (size_t i = 0; i < mask.size(); ++i) {
      segments[i / static_cast<size_t>(tokens_)].push_back(masked && mask[i] == 0 ? -1 : 0);
    }
    const Batch batch = batch_of(segments, std::vector<uint8_t>(static_cast<size_t>(rows_), 0));
    pool_ = std::make_unique<StatePool>(declared_.state, rows_, tokens_, golden_.dtype(), test_device());
    pool_->load_counts(0, rows_, [this](const std::string& name) { return initial_state(name); });
    for (const NamedTensor& state : pool_->tensors()) {
      if (!state.name.ends_with(".value") && !state.name.ends_with(".ring")) continue;
      const Tensor initial = initial_state(state.name);
      EXPECT_TRUE(initial.shape() == state.tensor.shape()) << state.name;
      state.tensor.copy_from(initial);
    }
    pool_->begin_step(batch);
    commitment_ = Tensor::zeros({1}, DType::f64, test_device());
    Tape tape;
    const Forward f{.tape = tape,
                    .batch = batch,
                    .state = pool_->view(0, rows_),
                    .training = true,
                    .loss_sums = commitment_,
                    .loss_seeds = {masked ? 1 / static_cast<double>(rows_ * tokens_) : 0}};
    const Variable x = Variable::leaf(golden_.get("in/x"));
    const Variable y = (*block_)(f, x);
    tape.backward({{weighted_sum(tape, y, dy), 1.0}});
    pool_->commit();
    const Tensor dx = x.gradient()->value();
    if (dx_.defined()) ops::add(dx, dx, dx_, 1, 1);
    dx_ = dx;
    return y.value();
  }

  Tensor commitment() const {
    const double mean = commitment_.to_vector<double>()[0] / static_cast<double>(rows_ * tokens_);
    return converted(Tensor::from(std::vector<double>{mean}, {1}), golden_.dtype()).to(test_device());
  }

  // Newest entries in the last slots before the head.
  Tensor initial_state(const std::string& name) const {
    if (name == "attention.cache.mean.value") return golden_.get("in/state_mean");
    if (name == "attention.cache.count.value") return golden_.get("in/state_count");
    const std::vector<int32_t> lengths = golden_.get("in/state_len").to_vector<int32_t>();
    if (name.ends_with(".head")) return Tensor::from(std::vector<int64_t>(lengths.size(), window_), {rows_});
    if (name.ends_with(".empty")) return Tensor::from(std::vector<uint8_t>(lengths.size(), 0), {rows_});
    if (name.ends_with(".length") || name.ends_with(".written")) {
      return Tensor::from(std::vector<int64_t>(lengths.begin(), lengths.end()), {rows_});
    }
    const Tensor window = golden_.get(name.find("keys") != std::string::npos     ? "in/state_k_hat"
                                      : name.find("values") != std::string::npos ? "in/state_v"
                                                                                 : "in/state_z");
    Shape free = window.shape();
    free[1] = tokens_;
    return joined(window, Tensor::zeros(free, window.dtype(), test_device()), 1);
  }

  void expect_state() {
    const StateView state = pool_->view(0, rows_);
    golden_.expect("out/state_mean", state.current({0}));
    golden_.expect("out/state_count", state.current({1}));
    const LogId keys = log_named(declared_.state, "attention.window.keys");
    golden_.expect("out/state_k_hat", state.gather(keys));
    golden_.expect("out/state_v", state.gather(log_named(declared_.state, "attention.window.values")));
    const std::vector<int64_t> first(static_cast<size_t>(rows_), 0);
    const std::vector<int64_t> lengths = state.lengths(keys.group);
    golden_.expect("out/state_z",
                   state.gather(log_named(declared_.state, "attention.window.codes"), window_, first, lengths));
    golden_.expect("out/state_len", Tensor::from(std::vector<int32_t>(lengths.begin(), lengths.end()), {rows_}));
  }

  // Compares what the mixer makes of its input before it mixes, by the same functions.
  void expect_parts() {
    Tape tape(false);
    const auto in = [&](const std::string& name) { return Variable::constant(golden_.get("in/" + name)); };
    const Variable z = add_bias(tape, rms_norm(tape, in("x"), in("ln_g"), model_.norm.eps), in("ln_b"));
    const int64_t size = *model_.head_size;
    const double scale = std::pow(golden_.real("tau"), -0.5);
    const Variable gain = Variable::constant(
        converted(Tensor::from(std::vector<double>(static_cast<size_t>(size), scale), {size}), golden_.dtype())
            .to(test_device()));
    const auto heads = [&](const Variable& x, int64_t count) {
      return reshape(tape, x, {rows_, tokens_, count, x.dim(2) / count});
    };
    const Variable q = rms_norm(tape, heads(linear(tape, z, in("w_q")), model_.heads), gain, model_.norm.eps);
    const Variable k = rms_norm(tape, heads(linear(tape, z, in("w_k")), *model_.key_heads), gain, model_.norm.eps);
    golden_.expect("out/q", q.value());
    golden_.expect("out/k", k.value());
    Variable v = linear(tape, z, in("w_v"));
    if (golden_.flag("v_silu")) v = activation(tape, v, ops::Activation::silu);
    golden_.expect("out/v", heads(v, *model_.key_heads).value());
    if (golden_.flag("gated")) {
      golden_.expect("out/g",
                     heads(activation(tape, linear(tape, z, in("w_g")), ops::Activation::silu), model_.heads).value());
    }
    const std::vector<uint8_t> all(static_cast<size_t>(rows_ * tokens_), 1);
    golden_.expect("out/z", quantize(tape, k, codebook_of(declared_).codewords(golden_.dtype()),
                                     Tensor::from(all, {rows_ * tokens_}, test_device()), true)
                                .codes);
    // (q + v).R_m for distances m = 0..M, which a table has in reverse.
    PositionTables tables;
    const Tensor angles =
        tables.sinusoid(window_ + 1, model_.width, 0, golden_.real("pe_lam"), golden_.dtype(), test_device());
    const std::vector<double> r = values_of(linear(tape, Variable::constant(angles), in("w_r")).value());
    const std::vector<double> queries = values_of(q.value());
    const std::vector<double> shift = values_of(golden_.get("in/v"));
    std::vector<double> bias;
    const int64_t inner = model_.heads * size;
    for (int64_t i = 0; i < rows_ * tokens_; ++i) {
      for (int64_t h = 0; h < model_.heads; ++h) {
        for (int64_t m = 0; m <= window_; ++m) {
          double sum = 0;
          for (int64_t d = h * size; d < (h + 1) * size; ++d) {
            sum += (queries[static_cast<size_t>(i * inner + d)] + scale * shift[static_cast<size_t>(d)]) * scale *
                   r[static_cast<size_t>((window_ - m) * inner + d)];
          }
          bias.push_back(sum);
        }
      }
    }
    golden_.expect(
        "out/bias",
        converted(Tensor::from(bias, {rows_, tokens_, model_.heads, window_ + 1}), golden_.dtype()).to(test_device()));
  }

  // out/o through output projections that pick some of its features.
  void read_mixed() {
    const ParameterStore::Entry* out = nullptr;
    for (const ParameterStore::Entry& entry : store_.entries()) {
      if (entry.name == "attention.out.weight") out = &entry;
    }
    const Tensor weight = out->variable.value();
    const int64_t width = out->shape[0];
    const int64_t inner = out->shape[1];
    const Tensor kept = joined(weight, weight, 0);
    const Tensor gradients = joined(store_.gradients(), store_.gradients(), 0);
    const Tensor dx = dx_;
    const Tensor x = golden_.get("in/x");
    Tensor mixed;
    for (int64_t begin = 0; begin < inner; begin += width) {
      std::vector<double> picks(static_cast<size_t>(width * inner), 0);
      for (int64_t i = 0; i < std::min(width, inner - begin); ++i)
        picks[static_cast<size_t>(i * inner + begin + i)] = 1;
      weight.copy_from(converted(Tensor::from(picks, {width, inner}), golden_.dtype()).to(test_device()));
      const Tensor y = forward(Tensor::zeros(x.shape(), x.dtype(), x.device()), false);
      const Tensor added = Tensor::empty_like(y);
      ops::add(added, y, x, 1, -1);
      const Tensor features = part(added, 2, 0, std::min(width, inner - begin));
      mixed = begin == 0 ? features : joined(mixed, features, 2);
    }
    golden_.expect("out/o", mixed);
    weight.copy_from(part(kept, 0, 0, width));
    store_.gradients().copy_from(part(gradients, 0, 0, store_.gradients().numel()));
    dx_ = dx;
  }

  GoldenCase& golden_;
  ModelConfig model_;
  int64_t rows_, tokens_, window_;
  ParameterStore store_;
  Declarations declared_;
  Scope scope_;
  std::unique_ptr<Block> block_;
  std::unique_ptr<StatePool> pool_;
  Tensor commitment_, dx_;
};

TEST(GoldenGauBlock, AllCases) {
  GoldenFile(golden_folder(), "gau_block").for_each_case([](GoldenCase& golden) { Unit(golden).run(); });
}

}  // namespace
}  // namespace quire::test
