#include "tests/autograd/gradient_cases.h"

#include "autograd/functions/attention.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/embedding.h"
#include "autograd/functions/knn.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/rotary.h"
#include "tests/support/attention_inputs.h"

namespace quire::test {

namespace {

using Inputs = std::vector<Variable>;

void add_basic(std::vector<GradientCase>& cases) {
  RandomTensors r(1);
  const auto a = [&](const Shape& shape) { return r.normal(shape); };
  cases.push_back({"add", {a({3, 5}), a({3, 5})}, [](Tape& t, const Inputs& x) { return add(t, x[0], x[1]); }});
  cases.push_back({"add_to_itself", {a({7})}, [](Tape& t, const Inputs& x) { return add(t, x[0], x[0]); }});
  cases.push_back({"add_scaled", {a({3, 7}), a({1})}, [y = a({3, 7})](Tape& t, const Inputs& x) {
                     return add_scaled(t, x[0], y, x[1]);
                   }});
  cases.push_back(
      {"multiply", {a({1, 7}), a({1, 7})}, [](Tape& t, const Inputs& x) { return multiply(t, x[0], x[1]); }});
  cases.push_back({"square", {a({5})}, [](Tape& t, const Inputs& x) { return multiply(t, x[0], x[0]); }});
  cases.push_back({"scale", {a({2, 3})}, [](Tape& t, const Inputs& x) { return scale(t, x[0], -1.7); }});
  cases.push_back({"reshape", {a({2, 3, 5})}, [](Tape& t, const Inputs& x) { return reshape(t, x[0], {6, 5}); }});
  cases.push_back(
      {"linear", {a({2, 3, 5}), a({7, 5})}, [](Tape& t, const Inputs& x) { return linear(t, x[0], x[1]); }});
  cases.push_back({"linear_bias", {a({3, 1}), a({2, 1}), a({2})}, [](Tape& t, const Inputs& x) {
                     return linear(t, x[0], x[1], x[2]);
                   }});
  for (const ops::Activation kind : {ops::Activation::relu, ops::Activation::gelu}) {
    const std::string name = kind == ops::Activation::relu ? "relu" : "gelu";
    cases.push_back({"linear_" + name, {a({3, 5}), a({4, 5}), a({4})}, [kind](Tape& t, const Inputs& x) {
                       return linear_activation(t, x[0], x[1], x[2], kind);
                     }});
  }
  cases.push_back({"linear_twice", {a({3, 5}), a({5, 5}), a({5})}, [](Tape& t, const Inputs& x) {
                     return linear(t, linear(t, x[0], x[1], x[2]), x[1], x[2]);
                   }});
  cases.push_back({"weighted_sum", {a({3, 2})}, [](Tape& t, const Inputs& x) {
                     return weighted_sum(t, x[0], RandomTensors(5).normal({3, 2}));
                   }});
  cases.push_back(
      {"scale_heads", {a({2, 3, 5, 2}), a({5})}, [](Tape& t, const Inputs& x) { return scale_heads(t, x[0], x[1]); }});
  cases.push_back({"scale_heads_twice", {a({1, 3, 2}), a({3})}, [](Tape& t, const Inputs& x) {
                     return scale_heads(t, scale_heads(t, x[0], x[1]), x[1]);
                   }});
  const ops::DropoutKey key{RandomKey::of(3, 4), 5, 6, 0.4};
  cases.push_back({"dropout", {a({2, 3, 7})}, [key](Tape& t, const Inputs& x) { return dropout(t, x[0], {}, key); }});
  cases.push_back({"dropout_residual", {a({1, 3, 5}), a({1, 3, 5})}, [key](Tape& t, const Inputs& x) {
                     return dropout(t, x[0], x[1], key);
                   }});
  cases.push_back({"dropout_residual_is_input", {a({1, 3, 5})}, [key](Tape& t, const Inputs& x) {
                     return dropout(t, x[0], x[0], key);
                   }});
  cases.push_back({"dropout_off", {a({1, 3, 5}), a({1, 3, 5})}, [](Tape& t, const Inputs& x) {
                     return dropout(t, x[0], x[1], {});
                   }});
}

void add_norms(std::vector<GradientCase>& cases) {
  RandomTensors r(2);
  for (const Shape& shape : {Shape{1, 5}, Shape{3, 2, 7}, Shape{67, 3}}) {
    const std::string size = std::to_string(shape.numel());
    const Shape width{shape[-1]};
    cases.push_back({"rms_norm_" + size, {r.normal(shape), r.normal(width)}, [](Tape& t, const Inputs& x) {
                       return rms_norm(t, x[0], x[1], 0.1);
                     }});
    cases.push_back({"layer_norm_" + size,
                     {r.normal(shape), r.normal(width), r.normal(width)},
                     [](Tape& t, const Inputs& x) { return layer_norm(t, x[0], x[1], x[2], 0.1); }});
    cases.push_back({"l2_normalize_" + size, {r.normal(shape)}, [](Tape& t, const Inputs& x) {
                       return l2_normalize(t, x[0], 0.1);
                     }});
    cases.push_back({"relu_" + size, {r.normal(shape)}, [](Tape& t, const Inputs& x) {
                       return activation(t, x[0], ops::Activation::relu);
                     }});
    cases.push_back({"gelu_" + size, {r.normal(shape)}, [](Tape& t, const Inputs& x) {
                       return activation(t, x[0], ops::Activation::gelu);
                     }});
    cases.push_back({"swiglu_" + size, {r.normal(shape), r.normal(shape)}, [](Tape& t, const Inputs& x) {
                       return swiglu(t, x[0], x[1]);
                     }});
  }
  // One normalisation used twice, as the pre-norm of carried and current states is.
  cases.push_back({"norms_share_weights",
                   {r.normal({2, 5}), r.normal({3, 5}), r.normal({5}), r.normal({5})},
                   [](Tape& t, const Inputs& x) {
                     const Variable a = layer_norm(t, x[0], x[2], x[3], 0.1);
                     const Variable b = layer_norm(t, x[1], x[2], x[3], 0.1);
                     return linear(t, a, b);
                   }});
}

void add_lookups(std::vector<GradientCase>& cases) {
  RandomTensors r(3);
  const Tensor ids = r.integers({2, 5}, 0, 4);
  cases.push_back(
      {"embedding", {r.normal({7, 3})}, [ids](Tape& t, const Inputs& x) { return embedding(t, x[0], ids, 1.3); }});
  // Two tables as one: an id has a row of one of them.
  const Tensor mixed = RandomTensors(31).integers({3, 7}, -3, 4);
  const Tensor others = RandomTensors(31).integers({3, 7}, -3, 4);
  for (int64_t i = 0; i < others.numel(); ++i) others.data<int32_t>()[i] = -1 - others.data<int32_t>()[i];
  cases.push_back({"embedding_of_two_tables", {r.normal({4, 3}), r.normal({3, 3})}, [=](Tape& t, const Inputs& x) {
                     return add(t, embedding(t, x[0], mixed, 1.3), embedding(t, x[1], others, 0.7));
                   }});
  const Tensor index = r.integers({11}, 0, 4);
  cases.push_back({"gather_columns", {r.normal({3, 5})}, [index](Tape& t, const Inputs& x) {
                     return gather_columns(t, x[0], index);
                   }});
  const Tensor targets = r.integers({6}, 0, 7);
  const Tensor mask = r.flags({6});
  for (const int64_t budget : {1000, 15, 1}) {  // all positions at once, two at a time, one at a time
    cases.push_back({"projection_cross_entropy_" + std::to_string(budget),
                     {r.normal({2, 3, 5}), r.normal({7, 5}), r.normal({7})},
                     [=](Tape& t, const Inputs& x) {
                       return projection_cross_entropy(t, x[0], x[1], x[2], targets, mask, 1.0, budget).sum;
                     }});
  }
  cases.push_back({"tied_embedding", {r.normal({7, 3})}, [=](Tape& t, const Inputs& x) {
                     const Tensor tokens = RandomTensors(8).integers({2, 3}, 0, 7);
                     const Variable h = embedding(t, x[0], tokens, 2);
                     return projection_cross_entropy(t, h, x[0], {}, targets, mask, 1.0, 15).sum;
                   }});
}

// Every tensor of the form is an input, in the order of AttentionVariables.
void add_attention(std::vector<GradientCase>& cases, const AttentionForm& form) {
  const ops::AttentionInputs settings = attention_inputs(form, static_cast<uint32_t>(cases.size()));
  std::vector<Tensor> inputs{settings.q, settings.k, settings.v};
  for (const Tensor* t :
       {&settings.cache_k, &settings.cache_v, &settings.bias, &settings.r, &settings.u, &settings.v_bias}) {
    if (t->defined()) inputs.push_back(*t);
  }
  cases.push_back({"attention_" + form.name, inputs, [settings, form](Tape& t, const Inputs& x) {
                     AttentionVariables variables{x[0], x[1], x[2], {}, {}, {}, {}, {}, {}};
                     size_t next = 3;
                     if (form.slots > 0) {
                       variables.cache_k = x[next++];
                       variables.cache_v = x[next++];
                     }
                     if (form.bias) variables.bias = x[next++];
                     if (form.relative) {
                       variables.r = x[next++];
                       variables.u = x[next++];
                       variables.v_bias = x[next++];
                     }
                     return attention(t, variables, settings);
                   }});
}

void add_rotary(std::vector<GradientCase>& cases) {
  RandomTensors r(6);
  const auto turned = [](Tape& t, const Variable& x, const Tensor& head) {
    ops::RotaryInputs settings;
    settings.table = Tensor::zeros({10, 2, 2}, DType::f64);
    settings.origin = 5;
    settings.head = head;
    ops::rotary_table(settings.table, settings.origin, 9);
    return rotary(t, x, settings);
  };
  cases.push_back(
      {"rotary", {r.normal({2, 5, 3, 4})}, [turned](Tape& t, const Inputs& x) { return turned(t, x[0], {}); }});
  cases.push_back({"rotary_ring", {r.normal({2, 5, 1, 7})}, [turned](Tape& t, const Inputs& x) {
                     return turned(t, x[0], Tensor::from(std::vector<int32_t>{3, 0}, {2}));
                   }});
}

void add_attentions(std::vector<GradientCase>& cases) {
  const std::vector<AttentionForm> forms{
      {.name = "one", .rows = 1, .queries = 1, .heads = 1, .kv_heads = 1, .size = 1, .value_size = 1},
      {.name = "plain", .queries = 5},
      {.name = "ring", .rows = 3, .queries = 2, .slots = 5, .attend_self = false, .bias = true, .relative = true},
      {.name = "documents", .queries = 7, .slots = 3, .window = 3, .documents = true, .relative = true},
      {.name = "grouped", .heads = 4, .kv_heads = 2, .size = 2, .value_size = 3, .slots = 2, .bias = true},
      {.name = "blocks",
       .rows = 1,
       .queries = 67,
       .heads = 1,
       .kv_heads = 1,
       .size = 1,
       .value_size = 1,
       .slots = 131,
       .window = 130,
       .relative = true},
      {.name = "dropout", .queries = 7, .slots = 3, .bias = true, .dropout = 0.4},
  };
  for (const AttentionForm& form : forms) add_attention(cases, form);
  cases.push_back({"attention_one_tensor", {RandomTensors(4).normal({2, 5, 2, 3})}, [](Tape& t, const Inputs& x) {
                     const ops::AttentionInputs settings = attention_inputs({}, 5);
                     return attention(t, {x[0], x[0], x[0], {}, {}, {}, {}, {}, {}}, settings);
                   }});
}

void add_knn(std::vector<GradientCase>& cases) {
  RandomTensors r(9);
  ops::KnnMemory memory;
  memory.keys = r.normal({2, 5, 1, 3});
  memory.values = r.normal({2, 5, 1, 4});
  memory.head = Tensor::from(std::vector<int32_t>{2, 4}, {2});
  memory.length = Tensor::from(std::vector<int32_t>{5, 2}, {2});
  // [2, 3, 2, 2]: different entries, one query without any.
  const Tensor index =
      Tensor::from(std::vector<int32_t>{4, 0, 1, 2, -1, -1, 3, -1, 0, 4, 2, 1, 1, 0, 0, -1, -1, -1, 1, -1, 0, 1, -1, 0},
                   {2, 3, 2, 2});
  const Tensor q = r.normal({2, 3, 2, 3});
  cases.push_back(
      {"knn_attention", {q}, [=](Tape& t, const Inputs& x) { return knn_attention(t, x[0], index, memory); }});
  cases.push_back({"knn_attention_twice", {q}, [=](Tape& t, const Inputs& x) {
                     return add(t, knn_attention(t, x[0], index, memory),
                                knn_attention(t, scale(t, x[0], 2), index, memory));
                   }});
  for (const bool attend_self : {true, false}) {
    const AttentionForm form{
        .queries = 3, .kv_heads = 1, .value_size = 4, .slots = 2, .attend_self = attend_self, .bias = true};
    const ops::AttentionInputs settings = attention_inputs(form, 77);
    cases.push_back({attend_self ? "joint_attention" : "joint_attention_others",
                     {settings.q, settings.k, settings.v, settings.bias, q},
                     [=](Tape& t, const Inputs& x) {
                       AttentionVariables local{x[0], x[1], x[2], {}, {}, x[3], {}, {}, {}};
                       local.cache_k = Variable::constant(settings.cache_k);
                       local.cache_v = Variable::constant(settings.cache_v);
                       return joint_attention(t, local, settings, x[4], index, memory);
                     }});
  }
  const Shape shape{3, 2, 5, 2};
  const Tensor open = Tensor::from(std::vector<uint8_t>{1, 0, 1}, {3});
  cases.push_back({"gate_heads", {r.normal(shape), r.normal(shape), r.normal({5})}, [](Tape& t, const Inputs& x) {
                     return gate_heads(t, x[0], x[1], x[2], {}, {});
                   }});
  cases.push_back({"gate_heads_closed",
                   {r.normal(shape), r.normal(shape), r.normal({5})},
                   [open](Tape& t, const Inputs& x) { return gate_heads(t, x[0], x[1], x[2], {}, open); }});
  cases.push_back({"gate_heads_twice", {r.normal(shape), r.normal({5})}, [open](Tape& t, const Inputs& x) {
                     return gate_heads(t, gate_heads(t, x[0], x[0], x[1], {}, open), x[0], x[1], {}, {});
                   }});
  for (const bool closed : {false, true}) {
    cases.push_back({closed ? "gate_heads_content_closed" : "gate_heads_content",
                     {r.normal(shape), r.normal(shape), r.normal({5}), r.normal({6, 5})},
                     [closed, open](Tape& t, const Inputs& x) {
                       return gate_heads(t, x[0], x[1], x[2], x[3], closed ? open : Tensor());
                     }});
  }
}

}  // namespace

const std::vector<GradientCase>& gradient_cases() {
  static const std::vector<GradientCase> cases = [] {
    std::vector<GradientCase> all;
    add_basic(all);
    add_norms(all);
    add_lookups(all);
    add_rotary(all);
    add_attentions(all);
    add_knn(all);
    return all;
  }();
  return cases;
}

}  // namespace quire::test
