// Golden block_recurrent: layers window by window, and the gates of the states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/functions/attention.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/rotary.h"
#include "layers/mixers/block_recurrent_states.h"
#include "layers/pass/visibility.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rotary_angles.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

RecurrentGate gate_of(GoldenCase& golden) {
  const std::string gate = golden.text("gate");
  return gate == "residual" ? RecurrentGate::residual
         : gate == "fixed"  ? RecurrentGate::fixed
         : gate == "full"   ? RecurrentGate::full
                            : RecurrentGate::lstm;
}

Variable leaf_of(const std::map<std::string, Variable>& leaves, const std::string& name) {
  const auto found = leaves.find(name);
  return found == leaves.end() ? Variable() : found->second;
}

// [E, width], or of lstm [2, E, width] as [2 E, width].
RecurrentGateOf<Variable> gate_weights(Tape& tape, const Variable& bias, const Variable& weight) {
  if (!weight.defined() || weight.shape().rank() == 2) return {bias, weight};
  return {bias, reshape(tape, weight, {weight.dim(0) * weight.dim(1), weight.dim(2)})};
}

void run_gate(GoldenCase& golden) {
  const std::map<std::string, Variable> leaves = golden.leaves();
  golden.unused({"batch", "d_hidden", "d_model", "n_state"});
  Tape tape;
  const RecurrentGateOf<Variable> gate = gate_weights(tape, leaf_of(leaves, "b"), leaf_of(leaves, "w"));
  const Variable next =
      recurrent_gate(tape, gate_of(golden), gate, leaves.at("c"), leaves.at("z"), leaf_of(leaves, "h"));
  golden.expect("out/c_next", next.value());
  tape.backward({{weighted_sum(tape, next, golden.get("grad_out/c_next")), 1.0}});
  golden.expect_gradients(leaves);
}

class RecurrentLayer {
 public:
  explicit RecurrentLayer(GoldenCase& golden)
      : golden_(golden),
        leaves_(golden.leaves()),
        rows_(golden.number("batch")),
        window_(golden.number("window")),
        windows_(golden.number("n_win")),
        segments_(golden.number("n_seg")),
        tokens_(windows_ * window_),
        states_(golden.number("n_state")),
        width_(golden.number("d_model")),
        heads_(golden.number("n_head")),
        size_(golden.number("d_head")) {}

  void run() {
    config_.window = window_;
    config_.states = states_;
    config_.gate = gate_of(golden_);
    const std::string update = golden_.text("config");
    config_.update = update == "skip"   ? RecurrentUpdate::skip
                     : update == "dual" ? RecurrentUpdate::dual
                                        : RecurrentUpdate::single;
    config_.qk_norm = golden_.flag("qk_norm");
    config_.mask_empty = golden_.flag("mask_empty_cache");
    golden_.expect_only("qk_eps", 1e-6);
    golden_.unused({"d_ff", "state_in", "scale"});
    eps_ = golden_.real("norm_eps");
    Tape tape;
    begin();
    std::vector<Variable> outputs, ends;
    std::vector<int32_t> lengths;
    for (int64_t s = 0; s < segments_; ++s) {
      outputs.push_back(reshape(tape, segment(tape, s, ends), {1, rows_, tokens_, width_}));
      for (const bool known : known_) lengths.push_back(known ? static_cast<int32_t>(window_) : 0);
    }
    const Variable y = concatenate(tape, outputs, 0);
    golden_.expect("out/y", y.value());
    golden_.expect("out/state",
                   Variable(concatenate(tape, ends, 0)).value().reshape({segments_, windows_, rows_, states_, width_}));
    golden_.expect("out/state_end", end_.value());
    golden_.expect("out/cache_k", keys_.value());
    golden_.expect("out/cache_v", values_.value());
    golden_.expect("out/cache_len", Tensor::from(lengths, {segments_, rows_}, test_device()));
    tape.backward({{weighted_sum(tape, y, golden_.get("grad_out/y")), 1.0},
                   {weighted_sum(tape, end_, golden_.get("grad_out/state_end")), 1.0}});
    golden_.expect_gradients(leaves_);
  }

 private:
  void begin() {
    const auto zeros = [&](const Shape& shape) {
      return Variable::constant(Tensor::zeros(shape, golden_.dtype(), test_device()));
    };
    known_.assign(static_cast<size_t>(rows_), false);
    const Shape cache{rows_, window_, heads_, size_};
    if (!golden_.has("in/state0")) {
      end_ = zeros({rows_, states_, width_}), keys_ = zeros(cache), values_ = zeros(cache);
      return;
    }
    end_ = Variable::constant(golden_.get("in/state0"));
    keys_ = Variable::constant(golden_.get("in/cache_k0"));
    values_ = Variable::constant(golden_.get("in/cache_v0"));
    const std::vector<int32_t> valid = golden_.get("in/cache_valid0").to_vector<int32_t>();
    for (size_t row = 0; row < valid.size(); ++row) known_[row] = valid[row] != 0;
  }

  Variable weight(Tape& tape, const char* name, int64_t n) const {
    const Variable& all = leaves_.at(name);
    return reshape(tape, slice(tape, all, 0, n, n + 1), {all.dim(1), all.dim(2)});
  }
  Variable scale_of(Tape& tape, const char* name, int64_t n) const {
    if (!config_.qk_norm) return {};
    return reshape(tape, slice(tape, leaves_.at(name), 0, n, n + 1), {heads_});
  }
  Variable unit(Tape& tape, const Variable& x) const { return config_.qk_norm ? l2_normalize(tape, x, 1e-6) : x; }
  Variable scaled(Tape& tape, const Variable& x, const Variable& factor) const {
    return factor.defined() ? scale_heads(tape, x, factor) : x;
  }

  RecurrentWeights state_weights(Tape& tape) const {
    RecurrentWeights w;
    w.norm = leaves_.at("s_g_attn"), w.position = leaves_.at("s_pos"), w.initial = leaves_.at("s_init");
    w.query = weight(tape, "s_w_qkv", 0), w.key = weight(tape, "s_w_qkv", 1), w.value = weight(tape, "s_w_qkv", 2);
    w.token_query = weight(tape, "s_w_qkv", 3);
    w.self_scale = scale_of(tape, "s_a_scale", 0), w.token_scale = scale_of(tape, "s_a_scale", 1);
    w.out = leaf_of(leaves_, "s_w_o"), w.mlp_norm = leaf_of(leaves_, "s_g_ffn");
    w.up = leaf_of(leaves_, "s_w_1"), w.down = leaf_of(leaves_, "s_w_2");
    w.attention_gate = gate_weights(tape, leaf_of(leaves_, "s_ga_b"), leaf_of(leaves_, "s_ga_w"));
    w.mlp_gate = gate_weights(tape, leaf_of(leaves_, "s_gf_b"), leaf_of(leaves_, "s_gf_w"));
    return w;
  }

  Variable segment(Tape& tape, int64_t s, std::vector<Variable>& ends) {
    const Variable x = reshape(tape, slice(tape, leaves_.at("x"), 0, s, s + 1), {rows_, tokens_, width_});
    const Variable z = rms_norm(tape, x, leaves_.at("g_attn"), eps_);
    const auto heads = [&](int64_t n) {
      return reshape(tape, linear(tape, z, weight(tape, "w_qkv", n)), {rows_, tokens_, heads_, size_});
    };
    const Variable q = unit(tape, heads(0)), k = unit(tape, heads(1)), v = heads(2);
    const Variable q2 = scaled(tape, unit(tape, heads(3)), scale_of(tape, "a_scale", 1));
    const std::vector<int32_t> reset = golden_.get("in/reset").to_vector<int32_t>();
    std::vector<RecurrentPiece> pieces;
    std::vector<Variable> own;
    Variable before_k = keys_.detached(), before_v = values_.detached();
    std::vector<bool> known = known_;
    for (int64_t n = 0; n < windows_; ++n) {
      std::vector<bool> begins(static_cast<size_t>(rows_));
      for (int64_t row = 0; row < rows_; ++row) {
        begins[static_cast<size_t>(row)] = reset[static_cast<size_t>((s * windows_ + n) * rows_ + row)] != 0;
        if (begins[static_cast<size_t>(row)]) known[static_cast<size_t>(row)] = false;
      }
      for (int64_t row = 0; row < rows_; ++row) {
        const bool both = known[static_cast<size_t>(row)];
        pieces.push_back({.row = row,
                          .first_query = n * window_,
                          .queries = window_,
                          .first_key = both ? n * window_ : (n + 1) * window_,
                          .keys = both ? 2 * window_ : window_,
                          .begins = begins[static_cast<size_t>(row)]});
      }
      const auto part = [&](const Variable& of) { return slice(tape, of, 1, n * window_, (n + 1) * window_); };
      own.push_back(local(tape, part(q), part(k), part(v), before_k, before_v, known));
      before_k = part(k), before_v = part(v);
      known.assign(static_cast<size_t>(rows_), true);
    }
    // Pieces in the order of rows.
    std::ranges::stable_sort(pieces, {}, &RecurrentPiece::row);
    const RecurrentTables tables =
        recurrent_tables(pieces, rows_, tokens_, 2 * window_, config_.mask_empty, test_device());
    const Variable all_k = concatenate(tape, std::vector{keys_.detached(), k}, 1);
    const Variable all_v = concatenate(tape, std::vector{values_.detached(), v}, 1);
    const RecurrentResult result =
        recurrent_states(tape, config_, {heads_, eps_}, state_weights(tape), q2, all_k, all_v, end_.detached(), tables);
    for (const Variable& state : result.after) ends.push_back(reshape(tape, state, {1, rows_, states_, width_}));
    const Variable self = concatenate(tape, own, 1);
    if (s + 1 == segments_) {
      golden_.expect("out/y_self", self.value());
      golden_.expect("out/y_cross", result.read.value());
    }
    end_ = result.after.back(), keys_ = before_k, values_ = before_v, known_ = known;
    const auto lines = [&](const Variable& of) { return reshape(tape, of, {rows_, tokens_, heads_ * size_}); };
    const Variable joined = concatenate(tape, std::vector{lines(self), lines(result.read)}, 2);
    const Variable h = linear(tape, joined, leaves_.at("w_o"), {}, x);
    const Variable u = linear_activation(tape, rms_norm(tape, h, leaves_.at("g_ffn"), eps_), leaves_.at("w_1"), {},
                                         ops::Activation::relu);
    return linear(tape, u, leaves_.at("w_2"), {}, h);
  }

  // The attention of the tokens of a window to the window before and their own.
  Variable local(Tape& tape, const Variable& q, const Variable& k, const Variable& v, const Variable& before_k,
                 const Variable& before_v, const std::vector<bool>& known) {
    // Keys of a window that a document does not have are zero, and seen where they are not masked.
    std::vector<double> kept;
    std::vector<int32_t> first;
    for (const bool row : known) {
      kept.insert(kept.end(), static_cast<size_t>(window_ * heads_ * size_), row ? 1 : 0);
      for (int64_t t = 0; t < window_; ++t) {
        first.push_back(
            static_cast<int32_t>(row || !config_.mask_empty ? t - window_ : std::max<int64_t>(0, t - window_)));
      }
    }
    const Variable keep =
        Variable::constant(converted(Tensor::from(kept, before_k.shape(), test_device()), golden_.dtype()));
    AttentionVariables x;
    const Variable factor = scale_of(tape, "a_scale", 0);
    x.q = scaled(tape, q, factor), x.k = k, x.v = v;
    x.cache_k = multiply(tape, before_k, keep), x.cache_v = multiply(tape, before_v, keep);
    ops::AttentionInputs settings;
    settings.first_visible = Tensor::from(first, {rows_, window_}, test_device());
    settings.cache_head = Tensor::zeros({rows_}, DType::i32, test_device());
    settings.attend_self = golden_.flag("attend_self");
    settings.scale = config_.qk_norm ? 1 : 1 / std::sqrt(static_cast<double>(size_));
    const int64_t buckets = golden_.number("num_buckets"), furthest = golden_.number("max_distance");
    if (golden_.text("bias") == "t5") {
      std::vector<int32_t> index;
      for (int64_t d = window_; d >= 0; --d)
        index.push_back(static_cast<int32_t>(t5_bucket(-d, buckets, furthest, false)));
      const Tensor table = Tensor::from(index, {window_ + 1}, test_device());
      x.bias = gather_columns(tape, leaves_.at("bias_table"), table);
      if (factor.defined()) {
        const Variable line = scale_heads(tape, reshape(tape, x.bias, {1, heads_, window_ + 1}), factor);
        x.bias = reshape(tape, line, {heads_, window_ + 1});
      }
    }
    const double base = golden_.real("rope_base");
    if (golden_.text("rope") == "half") {
      ops::RotaryInputs rotation;
      rotation.table = Tensor::empty({2 * window_, 2, size_ / 2}, golden_.dtype(), test_device());
      ops::rotary_table(rotation.table, rotary_frequencies(base, size_ / 2, test_device()), 0, 1);
      rotation.origin = window_;
      x.q = rotary(tape, x.q, rotation);
      x.k = rotary(tape, x.k, rotation);
      rotation.head = settings.cache_head;
      x.cache_k = rotary(tape, x.cache_k, rotation);
    }
    return attention(tape, x, settings);
  }

  GoldenCase& golden_;
  std::map<std::string, Variable> leaves_;
  int64_t rows_, window_, windows_, segments_, tokens_, states_, width_, heads_, size_;
  double eps_ = 0;
  BlockRecurrentConfig config_;
  Variable end_, keys_, values_;  // after the last segment: states, keys and values of the last window
  std::vector<bool> known_;       // [B]: the row has a last window
};

TEST(GoldenBlockRecurrent, Layer) {
  GoldenFile(golden_folder(), "block_recurrent").for_each_case("layer", [](GoldenCase& golden) {
    RecurrentLayer(golden).run();
  });
}

TEST(GoldenBlockRecurrent, Gate) {
  GoldenFile(golden_folder(), "block_recurrent").for_each_case("gate", run_gate);
}

}  // namespace
}  // namespace quire::test
