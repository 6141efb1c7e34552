#include <cmath>

#include "tests/kernels/op_cases.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/attention_reference.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

using Tensors = std::vector<Tensor>;

Tensors flattened(const ops::AttentionInputs& in) {
  return {in.q, in.k, in.v, in.cache_k, in.cache_v, in.cache_head, in.first_visible, in.bias, in.r, in.u, in.v_bias};
}

ops::AttentionInputs assembled(ops::AttentionInputs settings, const Tensors& t) {
  settings.q = t[0];
  settings.k = t[1];
  settings.v = t[2];
  settings.cache_k = t[3];
  settings.cache_v = t[4];
  settings.cache_head = t[5];
  settings.first_visible = t[6];
  settings.bias = t[7];
  settings.r = t[8];
  settings.u = t[9];
  settings.v_bias = t[10];
  return settings;
}

Tensors run(const ops::AttentionInputs& in) {
  const Tensor out = beside(in.q, {in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)});
  const Tensor lse = wide_beside(in.q, {in.q.dim(0), in.q.dim(2), in.q.dim(1)});
  ops::attention(out, lse, in);
  return {out, lse};
}

// Returns the gradients that exist, in the order of AttentionGradients.
Tensors defined_ones(const ops::AttentionGradients& g) {
  Tensors found;
  for (const Tensor* t : {&g.dq, &g.dk, &g.dv, &g.dcache_k, &g.dcache_v, &g.dbias, &g.dr, &g.du, &g.dv_bias}) {
    if (t->defined()) found.push_back(*t);
  }
  return found;
}

// Outputs are filled with ones, so that a kernel that leaves a value alone is noticed.
Tensor dirty(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const Tensor ones = Tensor::from(std::vector<double>(static_cast<size_t>(tensor.numel()), 1.0), tensor.shape());
  return on_device(converted(ones, tensor.dtype()), tensor.device());
}

// dout, out and lse follow the inputs.
Tensors run_backward(const ops::AttentionInputs& in, const Tensors& t) {
  const ops::AttentionGradients g{dirty(in.q),    dirty(in.k), dirty(in.v), dirty(in.cache_k), dirty(in.cache_v),
                                  dirty(in.bias), dirty(in.r), dirty(in.u), dirty(in.v_bias)};
  ops::attention_backward(g, t[11], t[12], t[13], in);
  return defined_ones(g);
}

// bias, u, v_bias and lse.
const std::vector<size_t> kWide{7, 9, 10, 13};

void add_case(std::vector<OpCase>& cases, const AttentionForm& form, uint32_t seed) {
  const ops::AttentionInputs in = attention_inputs(form, seed);
  Tensors inputs = flattened(in);
  const int64_t keys = form.queries + form.slots;
  // A logit is a sum over the head size, an output one over the keys, a table's gradient one over rows and queries.
  const int64_t terms = 2 * form.size + keys + form.rows * form.queries;
  // The largest logits are some three standard deviations away from zero.
  // Tensor cores take q + u, probabilities and gradients of logits in bf16.
  const double roundings = form.size % 8 == 0 && form.value_size % 8 == 0 ? 5 : OpCase().roundings;
  const double amplification = std::max(1.0, form.scale > 1 ? 3 * form.scale * std::sqrt(form.size) : 1.0);
  cases.push_back({"attention", form.name, inputs, [in](const Tensors& t) { return run(assembled(in, t)); },
                   [in](const Tensors& t) {
                     const AttentionReference reference = attention_reference(assembled(in, t));
                     return Tensors{reference.out, reference.lse};
                   },
                   terms, amplification, kWide});
  cases.back().roundings = roundings;
  // The gradient is one of out and lse as they were stored: rounding them is no error of the backward pass.
  inputs.push_back(RandomTensors(seed + 1).normal({form.rows, form.queries, form.heads, form.value_size}));
  const AttentionReference forward = attention_reference(in);
  for (const Tensor& stored : {forward.out, forward.lse}) {
    inputs.push_back(converted(converted(stored, DType::f32), DType::f64));
  }
  cases.push_back({"attention_backward", form.name, inputs,
                   [in](const Tensors& t) { return run_backward(assembled(in, t), t); },
                   [in](const Tensors& t) {
                     return defined_ones(attention_reference_gradients(assembled(in, t), t[11], t[12], t[13]));
                   },
                   terms, amplification, kWide});
  cases.back().roundings = roundings;
}

// dgate, dattended and delta.
Tensors gate_backward_reference(const Tensor& dout, const Tensor& gate, const Tensor& attended) {
  const Tensor dgate = like(dout);
  const Tensor dattended = like(dout);
  for (int64_t i = 0; i < dout.numel(); ++i) {
    const double dy = values(dout)[i];
    const double g = values(gate)[i];
    const double sigmoid = 1 / (1 + std::exp(-g));
    values(dgate)[i] = dy * values(attended)[i] * (sigmoid + g * sigmoid * (1 - sigmoid));
    values(dattended)[i] = dy * g * sigmoid;
  }
  return {dgate, dattended, attention_delta_reference(dattended, attended)};
}

void add_delta_cases(std::vector<OpCase>& cases) {
  RandomTensors random(5);
  // Features: one, odd, whole packs of a warp, and of a block.
  for (const auto& shape : {Shape{1, 1, 1, 1}, Shape{2, 5, 3, 7}, Shape{2, 9, 2, 64}, Shape{1, 3, 2, 2056}}) {
    const std::string name = std::to_string(shape[2]) + "x" + std::to_string(shape[3]);
    cases.push_back({"attention_delta",
                     name,
                     {random.normal(shape), random.normal(shape)},
                     [](const Tensors& t) {
                       const Tensor delta = wide_beside(t[0], {t[0].dim(0), t[0].dim(2), t[0].dim(1)});
                       ops::attention_delta(delta, t[0], t[1]);
                       return Tensors{delta};
                     },
                     [](const Tensors& t) { return Tensors{attention_delta_reference(t[0], t[1])}; },
                     shape[3]});
    cases.push_back({"attention_gate_backward",
                     name,
                     {random.normal(shape), random.normal(shape, 3), random.normal(shape)},
                     [](const Tensors& t) {
                       const Tensor dgate = dirty(t[0]);
                       const Tensor dattended = dirty(t[0]);
                       const Tensor delta = wide_beside(t[0], {t[0].dim(0), t[0].dim(2), t[0].dim(1)});
                       ops::attention_gate_backward(dgate, dattended, delta, t[0], t[1], t[2]);
                       return Tensors{dgate, dattended, delta};
                     },
                     [](const Tensors& t) { return gate_backward_reference(t[0], t[1], t[2]); },
                     shape[3]});
  }
}

}  // namespace

void add_attention_cases(std::vector<OpCase>& cases) {
  add_delta_cases(cases);
  const std::vector<AttentionForm> forms{
      {.name = "one", .rows = 1, .queries = 1, .heads = 1, .kv_heads = 1, .size = 1, .value_size = 1},
      {.name = "nothing_visible", .rows = 1, .queries = 1, .attend_self = false, .bias = true, .relative = true},
      {.name = "causal", .rows = 5, .queries = 7, .heads = 3, .kv_heads = 3, .size = 5, .value_size = 2},
      {.name = "ring", .rows = 5, .queries = 3, .slots = 7},
      {.name = "ring_of_one", .queries = 1, .slots = 1, .bias = true},
      {.name = "window", .queries = 11, .slots = 6, .window = 3, .attend_self = false},
      {.name = "documents", .rows = 4, .queries = 13, .slots = 5, .documents = true, .bias = true, .relative = true},
      {.name = "grouped_heads", .heads = 6, .kv_heads = 2, .size = 4, .value_size = 7, .slots = 4, .relative = true},
      {.name = "bias", .rows = 3, .queries = 9, .slots = 8, .bias = true, .spare_entries = 2},
      {.name = "relative", .rows = 3, .queries = 9, .slots = 8, .relative = true, .spare_entries = 2},
      // More than one block of 64 queries and of 128 keys, none of them full.
      {.name = "blocks", .rows = 1, .queries = 150, .heads = 1, .kv_heads = 1, .slots = 141, .relative = true},
      {.name = "blocks_window", .queries = 131, .slots = 300, .window = 70, .bias = true, .relative = true},
      {.name = "blocks_short_window", .queries = 133, .slots = 9, .window = 2, .attend_self = false, .relative = true},
      {.name = "blocks_documents", .queries = 137, .slots = 150, .documents = true, .bias = true},
      {.name = "dropout", .rows = 2, .queries = 67, .slots = 9, .bias = true, .dropout = 0.4},
      // The farthest key alone in the last of 64 or 128 distances.
      {.name = "window_of_one", .queries = 5, .window = 1, .relative = true},
      {.name = "window_of_64", .rows = 1, .queries = 2, .slots = 64, .window = 64, .bias = true, .relative = true},
      // Groups of four random numbers begin anywhere.
      {.name = "dropout_relative",
       .rows = 2,
       .queries = 3,
       .heads = 3,
       .kv_heads = 1,
       .slots = 4,
       .bias = true,
       .relative = true,
       .dropout = 0.3},
      // Heads of more than 64 and 128 features, in whole vectors and not.
      {.name = "wide_heads",
       .rows = 1,
       .queries = 6,
       .kv_heads = 1,
       .size = 72,
       .value_size = 136,
       .slots = 3,
       .relative = true,
       .scale = 0.1},
      {.name = "wide_odd_heads",
       .rows = 1,
       .queries = 6,
       .heads = 1,
       .kv_heads = 1,
       .size = 133,
       .value_size = 70,
       .slots = 3,
       .bias = true,
       .relative = true,
       .scale = 0.1},
      // More terms than the CPU computes at once.
      {.name = "many_terms", .rows = 1, .queries = 70, .heads = 1, .kv_heads = 1, .slots = 1090, .relative = true},
      {.name = "many_terms_end",
       .rows = 1,
       .queries = 70,
       .heads = 1,
       .kv_heads = 1,
       .slots = 1190,
       .relative = true,
       .spare_entries = -77},
      // Keys beyond the tables.
      {.name = "terms_end", .rows = 3, .queries = 9, .slots = 8, .bias = true, .relative = true, .spare_entries = -7},
      {.name = "terms_end_blocks", .rows = 1, .queries = 150, .slots = 141, .relative = true, .spare_entries = -200},
      {.name = "terms_end_window",
       .queries = 131,
       .slots = 300,
       .window = 210,
       .bias = true,
       .relative = true,
       .spare_entries = -70},
      {.name = "large_logits", .rows = 1, .queries = 9, .slots = 6, .scale = 30},
      // Heads in whole chunks of 8 features: tensor cores in bf16.
      {.name = "chunks_one", .rows = 1, .queries = 1, .heads = 1, .kv_heads = 1, .size = 8, .value_size = 8},
      {.name = "chunks",
       .rows = 1,
       .queries = 150,
       .kv_heads = 1,
       .size = 16,
       .value_size = 8,
       .slots = 70,
       .bias = true,
       .scale = 0.2},
      {.name = "chunks_documents",
       .rows = 1,
       .queries = 137,
       .heads = 1,
       .kv_heads = 1,
       .size = 24,
       .value_size = 40,
       .slots = 150,
       .documents = true,
       .bias = true,
       .scale = 0.2},
      {.name = "chunks_relative",
       .rows = 1,
       .queries = 133,
       .size = 16,
       .value_size = 24,
       .slots = 141,
       .window = 100,
       .relative = true,
       .spare_entries = 3,
       .scale = 0.2},
      {.name = "chunks_terms_end",
       .queries = 67,
       .heads = 1,
       .kv_heads = 1,
       .size = 8,
       .value_size = 16,
       .slots = 80,
       .attend_self = false,
       .bias = true,
       .relative = true,
       .spare_entries = -60,
       .scale = 0.3},
      {.name = "chunks_wide",
       .rows = 1,
       .queries = 70,
       .heads = 2,
       .kv_heads = 1,
       .size = 72,
       .value_size = 136,
       .slots = 3,
       .relative = true,
       .scale = 0.1},
      {.name = "chunks_widest",
       .rows = 1,
       .queries = 130,
       .heads = 1,
       .kv_heads = 1,
       .size = 128,
       .value_size = 128,
       .slots = 66,
       .window = 80,
       .scale = 0.08},
      {.name = "chunks_dropout",
       .queries = 70,
       .heads = 2,
       .kv_heads = 2,
       .size = 16,
       .value_size = 16,
       .slots = 9,
       .bias = true,
       .relative = true,
       .dropout = 0.4,
       .scale = 0.2},
      // Heads of 64 to 128 features, one query and several tiles.
      {.name = "panels_one", .queries = 1, .kv_heads = 1, .size = 64, .value_size = 40, .slots = 3, .scale = 0.2},
      {.name = "panels",
       .rows = 1,
       .queries = 150,
       .heads = 2,
       .kv_heads = 1,
       .size = 64,
       .value_size = 64,
       .slots = 70,
       .bias = true,
       .scale = 0.12},
      {.name = "panels_documents",
       .rows = 2,
       .queries = 137,
       .heads = 1,
       .kv_heads = 1,
       .size = 40,
       .value_size = 64,
       .slots = 150,
       .documents = true,
       .scale = 0.15},
      {.name = "panels_window",
       .rows = 1,
       .queries = 290,
       .heads = 1,
       .kv_heads = 1,
       .size = 64,
       .value_size = 48,
       .slots = 131,
       .window = 70,
       .attend_self = false,
       .bias = true,
       .spare_entries = -20,
       .scale = 0.12},
      {.name = "panels_wide",
       .rows = 1,
       .queries = 140,
       .heads = 2,
       .kv_heads = 1,
       .size = 128,
       .value_size = 104,
       .slots = 67,
       .documents = true,
       .bias = true,
       .scale = 0.08},
      {.name = "panels_large_logits",
       .rows = 1,
       .queries = 70,
       .heads = 1,
       .kv_heads = 1,
       .size = 72,
       .value_size = 16,
       .slots = 6,
       .scale = 3},
      // Values of more than one slice of 256 features; tiles of which none is full.
      {.name = "chunks_wide_values",
       .queries = 70,
       .heads = 2,
       .kv_heads = 1,
       .size = 16,
       .value_size = 328,
       .slots = 70,
       .window = 90,
       .bias = true,
       .relative = true,
       .dropout = 0.3,
       .scale = 0.2},
      {.name = "chunks_wide_documents",
       .rows = 1,
       .queries = 133,
       .heads = 1,
       .kv_heads = 1,
       .size = 128,
       .value_size = 264,
       .slots = 66,
       .documents = true,
       .scale = 0.08},
      // Few queries of many carried keys.
      {.name = "chunks_wide_keys",
       .rows = 1,
       .queries = 3,
       .heads = 1,
       .kv_heads = 1,
       .size = 8,
       .value_size = 136,
       .slots = 560,
       .scale = 0.2},
      // The same with relative terms.
      {.name = "panels_relative_one",
       .queries = 1,
       .kv_heads = 1,
       .size = 64,
       .value_size = 40,
       .slots = 3,
       .relative = true,
       .scale = 0.15},
      {.name = "panels_relative",
       .rows = 1,
       .queries = 150,
       .heads = 2,
       .kv_heads = 1,
       .size = 64,
       .value_size = 64,
       .slots = 70,
       .bias = true,
       .relative = true,
       .scale = 0.08},
      {.name = "panels_relative_documents",
       .rows = 2,
       .queries = 137,
       .heads = 1,
       .kv_heads = 1,
       .size = 40,
       .value_size = 64,
       .slots = 150,
       .documents = true,
       .relative = true,
       .spare_entries = 5,
       .scale = 0.1},
      {.name = "panels_relative_window",
       .rows = 1,
       .queries = 290,
       .heads = 2,
       .kv_heads = 2,
       .size = 64,
       .value_size = 48,
       .slots = 131,
       .window = 130,
       .attend_self = false,
       .relative = true,
       .scale = 0.08},
      {.name = "panels_relative_terms_end",
       .rows = 1,
       .queries = 200,
       .heads = 1,
       .kv_heads = 1,
       .size = 64,
       .value_size = 64,
       .slots = 141,
       .window = 190,
       .bias = true,
       .relative = true,
       .spare_entries = -70,
       .scale = 0.08},
      {.name = "panels_relative_wide",
       .rows = 1,
       .queries = 140,
       .heads = 2,
       .kv_heads = 1,
       .size = 128,
       .value_size = 104,
       .slots = 67,
       .documents = true,
       .bias = true,
       .relative = true,
       .scale = 0.06},
      // Wide values behind a window, in several slices.
      {.name = "wide_window",
       .rows = 1,
       .queries = 530,
       .heads = 1,
       .kv_heads = 1,
       .size = 8,
       .value_size = 136,
       .slots = 20,
       .window = 30,
       .bias = true,
       .scale = 0.3},
  };
  uint32_t seed = 100;
  for (const AttentionForm& form : forms) add_case(cases, form, seed += 2);
}

}  // namespace quire::test
