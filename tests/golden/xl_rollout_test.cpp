// Golden xl_rel, kind rollout: two decoder blocks over consecutive segments, their hidden states carried by a
// StatePool.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "layers/model/block.h"
#include "layers/state/state_pool.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/hand_batch.h"
#include "tests/support/softmax_options.h"
#include "tests/support/state_logs.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

ModelConfig model_config(const GoldenCase& golden) {
  ModelConfig model;
  model.width = golden.number("d_model");
  model.layers = golden.number("n_layer");
  model.heads = golden.number("heads");
  model.head_size = golden.number("d_head");
  model.norm.kind = NormKind::layer;
  model.norm.placement = golden.flag("pre_lnorm") ? NormPlacement::pre : NormPlacement::post;
  model.norm.eps = golden.real("ln_eps");
  model.mlp.kind = MlpKind::relu;
  model.mlp.hidden = golden.number("d_inner");
  model.mlp.bias = true;
  model.position.kind = Position::xl;
  model.position.xl.clamp = golden.number("clamp_len");
  softmax_options(model).carry.kind = CarryKind::hidden;
  softmax_options(model).carry.length = golden.number("mem_len");
  // A span as long as the memory is what same_length gives; any span is a window.
  const int64_t span = golden.number("attn_span");
  softmax_options(model).same_length = span > 0 && span == golden.number("mem_len");
  if (span > 0 && !softmax_options(model).same_length) softmax_options(model).window = span - 1;
  golden.expect_only("scale", 1 / std::sqrt(static_cast<double>(golden.number("d_head"))));
  return model;
}

// The golden name of a parameter.
std::string golden_name(const std::string& parameter) {
  if (parameter == "position.u") return "u";
  if (parameter == "position.v") return "v";
  static const std::map<std::string, std::string> names{{"attention.query.weight", "W_q"},
                                                        {"attention.key.weight", "W_k"},
                                                        {"attention.value.weight", "W_v"},
                                                        {"attention.out.weight", "W_o"},
                                                        {"attention.relative.weight", "W_r"},
                                                        {"attention_norm.weight", "ln_g"},
                                                        {"attention_norm.bias", "ln_b"},
                                                        {"mlp_norm.weight", "ff_ln_g"},
                                                        {"mlp_norm.bias", "ff_ln_b"},
                                                        {"mlp.up.weight", "W1"},
                                                        {"mlp.up.bias", "b1"},
                                                        {"mlp.down.weight", "W2"},
                                                        {"mlp.down.bias", "b2"}};
  // blocks.0.mlp.up.weight is l0_W1
  const size_t layer = std::string("blocks.").size();
  const size_t dot = parameter.find('.', layer);
  std::string name = "l";
  name.append(parameter, layer, dot - layer);
  return name.append("_").append(names.at(parameter.substr(dot + 1)));
}

// [n_layer, B, m, E]: what each layer carries, the newest m entries.
Tensor carried_states(const StateView& state, const StateLayout& layout, int64_t layers, int64_t count) {
  Tensor all;
  for (int64_t i = 0; i < layers; ++i) {
    const LogId log = log_named(layout, "blocks." + std::to_string(i) + ".attention.cache.hidden");
    for (const int64_t length : state.lengths(log.group)) EXPECT_EQ(length, count);
    const Tensor entries = state.gather(log);
    const Tensor newest = part(entries, 1, entries.dim(1) - count, entries.dim(1));
    const Tensor layer = newest.reshape({1, newest.dim(0), newest.dim(1), newest.dim(2)});
    all = i == 0 ? layer : joined(all, layer, 0);
  }
  return all;
}

TEST(GoldenXlRel, Rollout) {
  GoldenFile(golden_folder(), "xl_rel").for_each_case("rollout", [](GoldenCase& golden) {
    const ModelConfig model = model_config(golden);
    const int64_t rows = golden.number("batch");
    const int64_t tokens = golden.number("seg_len");
    ParameterStore store;
    Declarations declared;
    const StateLayout& layout = declared.state;
    const Scope scope(store, declared, golden.dtype());
    const std::vector<std::unique_ptr<Block>> blocks = make_blocks(scope, model, 0, model.layers);
    store.allocate(golden.dtype(), test_device(), 1);
    for (const ParameterStore::Entry& entry : store.entries()) {
      entry.variable.value().copy_from(golden.get("in/" + golden_name(entry.name)));
    }

    StatePool pool(layout, rows, tokens, golden.dtype(), test_device());
    const Tensor x = golden.get("in/x");
    const Tensor dy = golden.get("grad_out/y");
    Tensor all_y;
    Tensor all_dx;
    for (int64_t segment = 0; segment < golden.number("n_seg"); ++segment) {
      const Batch batch =
          one_segment(rows, tokens, std::vector<uint8_t>(static_cast<size_t>(rows), segment == 0 ? 1 : 0));
      pool.begin_step(batch);
      const StateView state = pool.view(0, rows);
      Tape tape;
      const Forward f{.tape = tape, .batch = batch, .state = state};
      const Variable input = Variable::leaf(x.select(0, segment));
      Variable y = input;
      for (const std::unique_ptr<Block>& block : blocks) y = (*block)(f, y);
      tape.backward({{weighted_sum(tape, y, dy.select(0, segment)), 1.0}});
      pool.commit();

      const Shape one{1, rows, tokens, model.width};
      const Tensor dx = input.gradient()->value().reshape(one);
      all_y = segment == 0 ? y.value().reshape(one) : joined(all_y, y.value().reshape(one), 0);
      all_dx = segment == 0 ? dx : joined(all_dx, dx, 0);
      const int64_t count = std::min((segment + 1) * tokens, golden.number("mem_len"));
      golden.expect("out/mem_after_seg" + std::to_string(segment), carried_states(state, layout, model.layers, count));
    }
    golden.expect("out/y", all_y);
    golden.expect("grad/x", all_dx);
    for (const ParameterStore::Entry& entry : store.entries()) {
      golden.expect("grad/" + golden_name(entry.name), ParameterStore::slice(store.gradients(), entry));
    }
  });
}

}  // namespace
}  // namespace quire::test
