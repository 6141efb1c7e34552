// Compares fused kernels of attention, to a subsequence and to retrieved entries, with compositions.
#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/knn.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/composed_attention.h"

namespace quire::test {

namespace {

// Returns the tensors of an attention as inputs of a case, first those that can have gradients.
struct Listed {
  Tensors tensors;
  std::vector<size_t> wide;

  explicit Listed(const ops::AttentionInputs& in) {
    const auto list = [&](const Tensor& tensor, bool is_wide) {
      if (is_wide && tensor.defined()) wide.push_back(tensors.size());
      if (tensor.defined()) tensors.push_back(tensor);
    };
    for (const Tensor* tensor : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v}) list(*tensor, false);
    list(in.bias, true);
    list(in.r, false);
    list(in.u, true);
    list(in.v_bias, true);
    for (const Tensor* tensor : {&in.cache_head, &in.first_visible, &in.last_visible}) list(*tensor, false);
  }
};

// Holds the attention of such inputs; `like` says which tensors it has.
struct Unlisted {
  AttentionVariables x;
  ops::AttentionInputs settings;

  Unlisted(const ops::AttentionInputs& like, const Inputs& inputs) : settings(like) {
    size_t next = 0;
    const auto take = [&](const Tensor& was) { return was.defined() ? inputs.at(next++) : Variable(); };
    x.q = take(like.q);
    x.k = take(like.k);
    x.v = take(like.v);
    x.cache_k = take(like.cache_k);
    x.cache_v = take(like.cache_v);
    x.bias = take(like.bias);
    x.r = take(like.r);
    x.u = take(like.u);
    x.v_bias = take(like.v_bias);
    settings.cache_head = take(like.cache_head).value();
    settings.first_visible = take(like.first_visible).value();
    settings.last_visible = take(like.last_visible).value();
  }
};

void add_attention(std::vector<OpCase>& cases, const AttentionForm& form) {
  const ops::AttentionInputs in = attention_inputs(form, hash_scope(form.name));
  const Listed listed(in);
  OpCase& made = add_composed(
      cases, "attention", form.name + "_function", listed.tensors,
      form.rows * form.queries * (form.queries + form.slots),
      [in](Tape& t, const Inputs& x) {
        const Unlisted call(in, x);
        return attention(t, call.x, call.settings);
      },
      [in](Tape& t, const Inputs& x) {
        const Unlisted call(in, x);
        return composed_attention(t, call.x, call.settings);
      },
      listed.wide);
  made.amplification = 8;  // logits up to 8 go through exp
  made.roundings = 24;     // delta and probabilities come from stored values and cancel in part
}

void add_attentions(std::vector<OpCase>& cases) {
  // rows, queries, heads, key heads, sizes of keys and of values, slots
  const std::vector<AttentionForm> forms{
      of_sizes("one", {1, 1, 1, 1, 1, 1, 0}),
      of_sizes("plain", {2, 5, 2, 2, 3, 3, 0}),
      of_sizes("ring", {3, 2, 2, 2, 3, 3, 5}, {.attend_self = false, .bias = true, .relative = true}),
      of_sizes("documents", {2, 7, 2, 2, 3, 3, 3}, {.window = 3, .documents = true, .relative = true}),
      of_sizes("grouped", {2, 5, 4, 2, 2, 3, 2}, {.bias = true}),
      of_sizes("short_tables", {2, 6, 2, 2, 3, 3, 3}, {.relative = true, .spare_entries = -4}),
      of_sizes("blocks", {1, 67, 1, 1, 1, 1, 131}, {.window = 130, .relative = true}),
      of_sizes("dropout", {3, 70, 4, 2, 5, 3, 133}, {.window = 140, .bias = true, .relative = true, .dropout = 0.2}),
      of_sizes("bidirectional", {2, 7, 2, 2, 3, 3, 0}, {.bidirectional = true}),
      of_sizes("bidirectional_ring", {3, 67, 4, 2, 3, 3, 9}, {.bidirectional = true}),
      of_sizes("bidirectional_dropout", {2, 9, 2, 2, 3, 3, 3}, {.dropout = 0.3, .bidirectional = true}),
      of_sizes("bidirectional_chunks", {2, 75, 1, 1, 16, 16, 5}, {.scale = 0.2, .bidirectional = true}),
      of_sizes("bidirectional_panels", {1, 75, 1, 1, 48, 40, 65}, {.scale = 0.15, .bidirectional = true}),
      of_sizes("bidirectional_products", {1, 70, 1, 1, 8, 136, 9}, {.scale = 0.2, .bidirectional = true}),
  };
  for (const AttentionForm& form : forms) add_attention(cases, form);
  const ops::AttentionInputs in = attention_inputs({}, 5);
  OpCase& one = add_composed(
      cases, "attention", "one_tensor", {RandomTensors(4).normal({2, 5, 2, 3}), in.first_visible}, 20,
      [in](Tape& t, const Inputs& x) {
        ops::AttentionInputs settings = in;
        settings.first_visible = x[1].value();
        return attention(t, {x[0], x[0], x[0], {}, {}, {}, {}, {}, {}}, settings);
      },
      [in](Tape& t, const Inputs& x) {
        return composed_attention(t, {x[0], x[0], x[0], {}, {}, {}, {}, {}, {}}, in);
      });
  one.amplification = 8;
  one.roundings = 24;
}

// A memory of two rows, 5 slots and one head: inputs 0 to 4 of a case are its keys, values, head, length and the index
// [2, 3, 2, 2], with a query that found nothing.
constexpr size_t kMemoryInputs = 5;

Tensors memory_inputs(RandomTensors& random) {
  return {
      random.normal({2, 5, 1, 3}), random.normal({2, 5, 1, 4}), Tensor::from(std::vector<int32_t>{2, 4}, {2}),
      Tensor::from(std::vector<int32_t>{5, 2}, {2}),
      Tensor::from(std::vector<int32_t>{4, 0, 1, 2, -1, -1, 3, -1, 0, 4, 2, 1, 1, 0, 0, -1, -1, -1, 1, -1, 0, 1, -1, 0},
                   {2, 3, 2, 2})};
}

ops::KnnMemory memory_of(const Inputs& x) {
  ops::KnnMemory memory;
  memory.keys = x[0].value();
  memory.values = x[1].value();
  memory.head = x[2].value();
  memory.length = x[3].value();
  return memory;
}

OpCase& add_memory_case(std::vector<OpCase>& cases, const char* op, const char* variant, const Tensors& inputs,
                        OneOutput function, OneOutput composition) {
  OpCase& made = add_composed(cases, op, variant, inputs, 12, std::move(function), std::move(composition));
  made.constants = {0, 1};
  made.amplification = 8;
  made.roundings = 24;
  return made;
}

void add_knn(std::vector<OpCase>& cases) {
  RandomTensors r(9);
  Tensors inputs = memory_inputs(r);
  inputs.push_back(r.normal({2, 3, 2, 3}));
  add_memory_case(
      cases, "knn_attention", "function", inputs,
      [](Tape& t, const Inputs& x) { return knn_attention(t, x[5], x[4].value(), memory_of(x)); },
      [](Tape& t, const Inputs& x) { return composed_knn_attention(t, x[5], x[4].value(), memory_of(x)); });
  add_memory_case(
      cases, "knn_attention", "twice", inputs,
      [](Tape& t, const Inputs& x) {
        return add(t, knn_attention(t, x[5], x[4].value(), memory_of(x)),
                   knn_attention(t, scale(t, x[5], 2), x[4].value(), memory_of(x)));
      },
      [](Tape& t, const Inputs& x) {
        return add(t, composed_knn_attention(t, x[5], x[4].value(), memory_of(x)),
                   composed_knn_attention(t, scale(t, x[5], 2), x[4].value(), memory_of(x)));
      });
  for (const bool attend_self : {true, false}) {
    const ops::AttentionInputs local = attention_inputs(
        {.queries = 3, .kv_heads = 1, .value_size = 4, .slots = 2, .attend_self = attend_self, .bias = true}, 77);
    const Listed listed(local);
    Tensors all = inputs;
    all.insert(all.end(), listed.tensors.begin(), listed.tensors.end());
    const auto unlisted = [local](const Inputs& x) {
      return Unlisted(local, Inputs(x.begin() + kMemoryInputs + 1, x.end()));
    };
    OpCase& made = add_memory_case(
        cases, "joint_attention", attend_self ? "" : "others", all,
        [unlisted](Tape& t, const Inputs& x) {
          const Unlisted call = unlisted(x);
          return joint_attention(t, call.x, call.settings, x[5], x[4].value(), memory_of(x));
        },
        [unlisted](Tape& t, const Inputs& x) {
          const Unlisted call = unlisted(x);
          return composed_joint_attention(t, call.x, call.settings, x[5], x[4].value(), memory_of(x));
        });
    for (const size_t at : listed.wide) made.wide.push_back(kMemoryInputs + 1 + at);
  }
}

// g a + (1 - g) b for a, b of `shape` [R, T, H, D]; inputs a, b, bias and then content [R T, H] and open u8 [R], each
// where its flag says so.
void add_gate(std::vector<OpCase>& cases, RandomTensors& r, const std::string& name, const Shape& shape,
              bool has_content, bool closes) {
  const int64_t rows = shape[0], lines = rows * shape[1], heads = shape[2];
  Tensors inputs{r.normal(shape), r.normal(shape), r.normal({heads})};
  if (has_content) inputs.push_back(r.normal({lines, heads}));
  if (closes) inputs.push_back(r.flags({rows}));
  if (closes) inputs.back().data<uint8_t>()[0] = 0;
  const auto content = [has_content](const Inputs& x) { return has_content ? x[3] : Variable(); };
  const auto flags = [closes](const Inputs& x) { return closes ? x.back().value() : Tensor(); };
  add_composed(
      cases, "gate_heads", name + (has_content ? "_content" : "") + (closes ? "_closed" : ""), inputs, lines * shape[3],
      [=](Tape& t, const Inputs& x) { return gate_heads(t, x[0], x[1], x[2], content(x), flags(x)); },
      [=](Tape& t, const Inputs& x) {
        const Variable bias = reshape(t, x[2], {1, heads});
        Variable gate = sigmoid(t, has_content ? add(t, x[3], bias) : broadcast(t, bias, {lines, heads}));
        gate = reshape(t, gate, {rows, shape[1], heads, 1});
        if (closes) gate = select(t, flags(x).reshape({rows, 1, 1, 1}), gate, {});
        return add(t, x[1], multiply(t, gate, subtract(t, x[0], x[1])));
      },
      {2})
      .amplification = 2;
}

void add_gates(std::vector<OpCase>& cases) {
  RandomTensors r(10);
  for (const bool has_content : {false, true}) {
    for (const bool closes : {false, true}) {
      add_gate(cases, r, "small", {3, 2, 5, 2}, has_content, closes);
      add_gate(cases, r, "odd", {4, 67, 3, 33}, has_content, closes);
    }
  }
  add_gate(cases, r, "one", {1, 1, 1, 1}, false, false);
  add_gate(cases, r, "whole_vectors", {4, 19, 3, 40}, true, true);
}

}  // namespace

void add_attention_function_cases(std::vector<OpCase>& cases) {
  add_attentions(cases);
  add_knn(cases);
  add_gates(cases);
}

}  // namespace quire::test
