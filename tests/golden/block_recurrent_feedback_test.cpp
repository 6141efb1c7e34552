// Golden block_recurrent, kind feedback: two layers, of which the upper one has the states that both read. A whole
// stack reads the segments of a case one after the other, with the state of its rows.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "layers/mixers/block_recurrent_feedback.h"
#include "layers/state/state_pool.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

constexpr int64_t kLayers = 2, kOwner = 1;

ModelConfig feedback_model(const GoldenCase& golden) {
  BlockRecurrentConfig recurrent;
  recurrent.window = golden.number("window");
  recurrent.states = golden.number("n_state");
  const std::string gate = golden.text("gate"), update = golden.text("config");
  for (const auto& [value, name] : EnumNames<RecurrentGate>::value)
    recurrent.gate = name == gate ? value : recurrent.gate;
  for (const auto& [value, name] : EnumNames<RecurrentUpdate>::value) {
    recurrent.update = name == update ? value : recurrent.update;
  }
  recurrent.qk_norm = golden.flag("qk_norm");
  golden.expect_only("qk_eps", 1e-6);
  recurrent.attend_self = golden.flag("attend_self");
  recurrent.mask_empty = golden.flag("mask_empty_cache");
  recurrent.feedback = kOwner;
  ModelConfig model;
  model.width = golden.number("d_model");
  model.layers = kLayers;
  model.heads = golden.number("n_head");
  model.head_size = golden.number("d_head");
  model.norm.kind = NormKind::rms;
  model.norm.eps = golden.real("norm_eps");
  model.mlp.kind = MlpKind::relu;
  model.mlp.hidden = golden.number("d_ff");
  model.position.kind = golden.text("bias") == "t5"     ? Position::t5
                        : golden.text("rope") == "half" ? Position::rope
                                                        : Position::none;
  model.position.t5.buckets = golden.number("num_buckets");
  model.position.t5.max_distance = golden.number("max_distance");
  model.position.rope.base = golden.real("rope_base");
  model.attention.mechanism = KindConfig(Role::mixer, "block_recurrent");
  model.attention.mechanism.options = ConfigBox(recurrent);
  golden.unused({"scale", "rope"});
  return model;
}

// The dataset of a parameter behind the layer's prefix, and its place along the first axis; -1: the whole dataset.
std::pair<std::string, int64_t> dataset_of_layer(const std::string& name) {
  static const std::map<std::string, std::pair<std::string, int64_t>> names{
      {"attention_norm.weight", {"g_attn", -1}},
      {"mlp_norm.weight", {"g_ffn", -1}},
      {"mlp.up.weight", {"w_1", -1}},
      {"mlp.down.weight", {"w_2", -1}},
      {"attention.bias", {"bias_table", -1}},
      {"attention.query.weight", {"w_qkv", 0}},
      {"attention.key.weight", {"w_qkv", 1}},
      {"attention.value.weight", {"w_qkv", 2}},
      {"attention.state_query.weight", {"w_qkv", 3}},
      {"attention.out.weight", {"w_o", -1}},
      {"attention.self_scale", {"a_scale", 0}},
      {"attention.state_scale", {"a_scale", 1}},
      {"attention.states.norm.weight", {"s_g_attn", -1}},
      {"attention.states.position", {"s_pos", -1}},
      {"attention.states.initial", {"s_init", -1}},
      {"attention.states.query.weight", {"s_w_qkv", 0}},
      {"attention.states.key.weight", {"s_w_qkv", 1}},
      {"attention.states.value.weight", {"s_w_qkv", 2}},
      {"attention.states.token_query.weight", {"s_w_qkv", 3}},
      {"attention.states.self_scale", {"s_a_scale", 0}},
      {"attention.states.token_scale", {"s_a_scale", 1}},
      {"attention.states.out.weight", {"s_w_o", -1}},
      {"attention.states.mlp_norm.weight", {"s_g_ffn", -1}},
      {"attention.states.up.weight", {"s_w_1", -1}},
      {"attention.states.down.weight", {"s_w_2", -1}},
      {"attention.states.attention_gate.bias", {"s_ga_b", -1}},
      {"attention.states.attention_gate.weight", {"s_ga_w", -1}},
      {"attention.states.mlp_gate.bias", {"s_gf_b", -1}},
      {"attention.states.mlp_gate.weight", {"s_gf_w", -1}},
  };
  return names.at(name);
}

std::pair<std::string, int64_t> dataset_of_parameter(const std::string& name) {
  const size_t dot = name.find('.', std::string("blocks.").size());
  const auto [dataset, index] = dataset_of_layer(name.substr(dot + 1));
  return {"l" + name.substr(7, dot - 7) + "_" + dataset, index};
}

class FeedbackStream {
 public:
  explicit FeedbackStream(GoldenCase& golden)
      : golden_(golden),
        model_(feedback_model(golden)),
        rows_(golden.number("batch")),
        window_(golden.number("window")),
        windows_(golden.number("n_win")),
        segments_(golden.number("n_seg")),
        scope_(store_, declared_, golden.dtype()),
        stack_(scope_.child("stack"), model_),
        x_(Variable::leaf(golden.get("in/x"))),
        reset_(golden.get("in/reset").to_vector<int32_t>()),
        number_(static_cast<size_t>(rows_), 0),
        position_(static_cast<size_t>(rows_), 0) {
    golden.expect_only("state_in", 0);
    store_.allocate(golden.dtype(), test_device(), 1);
    for (const ParameterStore::Entry& entry : store_.entries()) {
      const auto [dataset, index] = dataset_of_parameter(entry.name);
      const Tensor all = golden.get("in/" + dataset);
      entry.variable.value().copy_from((index < 0 ? all : all.select(0, index)).reshape(entry.shape));
    }
    stack_.set_hooks({[this](const std::string& name, const Variable& value) { seen_[name].push_back(value); }});
  }

  void run() {
    StatePool pool(declared_.state, rows_, windows_ * window_, golden_.dtype(), test_device());
    Tape idle(false);
    std::vector<Variable> outputs;
    const std::vector<int32_t> lengths(static_cast<size_t>(segments_ * rows_), static_cast<int32_t>(window_));
    Shape one = x_.shape();
    one[0] = 1;
    for (int64_t s = 0; s < segments_; ++s) {
      seen_["blocks.1.attention.own"].clear();
      seen_["blocks.1.attention.read"].clear();
      outputs.push_back(reshape(idle, train(pool, s), one));
    }
    golden_.expect("out/y", concatenate(idle, outputs, 0).value());
    expect_states();
    golden_.expect("out/state_end", seen_["states"].back().value());
    expect_keys(pool);
    golden_.expect("out/cache_len", Tensor::from(lengths, {segments_, rows_}, test_device()));
    expect_gradients();
  }

 private:
  Batch batch_of_segment(int64_t s) {
    Batch batch = Batch::empty(rows_, windows_ * window_);
    for (int64_t row = 0; row < rows_; ++row) {
      const auto r = static_cast<size_t>(row);
      int32_t segment = 0;
      for (int64_t t = 0; t < batch.length; ++t) {
        const bool begins =
            t % window_ == 0 && reset_[static_cast<size_t>((s * windows_ + t / window_) * rows_ + row)] != 0;
        if (begins) number_[r]++, position_[r] = 0;
        if (begins && t == 0) batch.starts[r] = 1;
        if (begins && t > 0) ++segment;
        const auto cell = static_cast<size_t>(batch.at(row, t));
        batch.segment[cell] = segment;
        batch.document[cell] = number_[r];
        batch.position[cell] = position_[r]++;
      }
    }
    return batch;
  }

  // Reads a segment; its gradients are those of its outputs, and in the last one of the states that it leaves.
  Variable train(StatePool& pool, int64_t s) {
    const Batch batch = batch_of_segment(s);
    pool.begin_step(batch);
    const StateView view = pool.view(0, rows_);
    Tape tape;
    Forward f{.tape = tape, .batch = batch, .state = view};
    f.training = true;
    f.values = std::make_shared<std::vector<Variable>>(declared_.values.size());
    const Shape shape{rows_, windows_ * window_, model_.width};
    const Variable y = stack_(f, reshape(tape, slice(tape, x_, 0, s, s + 1), shape));
    const Tensor of_y = part(golden_.get("grad_out/y"), 0, s, s + 1).reshape(shape);
    std::vector<Tape::Seed> losses{{weighted_sum(tape, y, of_y), 1.0}};
    if (s + 1 == segments_) {
      losses.push_back({weighted_sum(tape, seen_["states"].back(), golden_.get("grad_out/state_end")), 1.0});
    }
    tape.backward(losses);
    pool.commit();
    return y.detached();
  }

  void expect_states() {
    Tape idle(false);
    const auto joined_over = [&](const std::string& name, int axis) {
      return concatenate(idle, seen_[name], axis).value();
    };
    golden_.expect(
        "out/state",
        joined_over("states", 0).reshape({segments_, windows_, rows_, golden_.number("n_state"), model_.width}));
    golden_.expect("out/y_self", joined_over("blocks.1.attention.own", 1));
    golden_.expect("out/y_cross", joined_over("blocks.1.attention.read", 1));
  }

  // The last window's keys in what rows carry.
  void expect_keys(StatePool& pool) {
    const StateView view = pool.view(0, rows_);
    for (size_t n = 0; n < declared_.state.logs().size(); ++n) {
      const StateLayout::Log& log = declared_.state.logs()[n];
      if (!log.name.starts_with("blocks.1.")) continue;
      const Tensor all = view.gather(LogId{static_cast<int>(n), log.group});
      const Tensor last = part(all, 1, all.dim(1) - window_, all.dim(1));
      golden_.expect(log.name.ends_with("keys") ? "out/cache_k" : "out/cache_v", last);
    }
  }

  void expect_gradients() {
    golden_.expect("grad/x", x_.gradient()->value());
    std::map<std::string, std::map<int64_t, Tensor>> parts;
    for (const ParameterStore::Entry& entry : store_.entries()) {
      const auto [dataset, index] = dataset_of_parameter(entry.name);
      parts[dataset][index] = ParameterStore::slice(store_.gradients(), entry);
    }
    for (const auto& [dataset, of] : parts) {
      Tensor all;
      for (const auto& [index, gradient] : of) {
        const Shape one =
            gradient.shape().rank() == 1 ? Shape{1, gradient.dim(0)} : Shape{1, gradient.dim(0), gradient.dim(1)};
        const Tensor next = index < 0 ? gradient : gradient.reshape(one);
        all = all.defined() ? joined(all, next, 0) : next;
      }
      golden_.expect("grad/" + dataset, all.reshape(golden_.get("in/" + dataset).shape()));
    }
  }

  GoldenCase& golden_;
  ModelConfig model_;
  int64_t rows_, window_, windows_, segments_;
  ParameterStore store_;
  Declarations declared_;
  Scope scope_;
  FeedbackStack stack_;
  Variable x_;
  std::vector<int32_t> reset_;
  std::vector<int64_t> number_;    // [B]: documents begun
  std::vector<int32_t> position_;  // [B]: of the next token
  std::map<std::string, std::vector<Variable>> seen_;
};

TEST(GoldenBlockRecurrent, Feedback) {
  GoldenFile(golden_folder(), "block_recurrent").for_each_case("feedback", [](GoldenCase& golden) {
    FeedbackStream(golden).run();
  });
}

}  // namespace
}  // namespace quire::test
