#include <cmath>

#include "kernels/elementwise.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"
#include "tests/support/composed_attention.h"

namespace quire::test {

namespace {

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

AttentionVariables variables_of(const ops::AttentionInputs& in) {
  const auto leaf = [](const Tensor& t) { return t.defined() ? Variable::leaf(t) : Variable(); };
  return {leaf(in.q),    leaf(in.k), leaf(in.v), leaf(in.cache_k), leaf(in.cache_v),
          leaf(in.bias), leaf(in.r), leaf(in.u), leaf(in.v_bias)};
}

// out and lse.
Tensors composed(const ops::AttentionInputs& in) {
  Tape tape(false);
  Variable lse;
  const Variable out = composed_attention(tape, variables_of(in), in, &lse);
  return {out.value(), lse.value()};
}

// The gradients of all defined inputs. The gradient is one of out and lse as they were stored: rounding them is no
// error of the backward pass.
Tensors composed_gradients(const ops::AttentionInputs& in, const Tensor& dout, const Tensor& out, const Tensor& lse) {
  Tape tape;
  const AttentionVariables x = variables_of(in);
  const std::vector<Variable> made = composed_by_lse(tape, x, in, lse);
  const Tensor delta = delta_of(dout, out);
  ops::scale(delta, delta, -1);
  tape.backward(made, {dout, delta});
  Tensors found;
  for (const Variable* leaf : {&x.q, &x.k, &x.v, &x.cache_k, &x.cache_v, &x.bias, &x.r, &x.u, &x.v_bias}) {
    if (!leaf->defined()) continue;
    const Gradient& gradient = *leaf->gradient();
    found.push_back(gradient.has_value() ? gradient.value() : like(leaf->value()));
  }
  return found;
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
  add_operation(
      cases, "attention", form.name, inputs, terms, [in](const Tensors& t) { return run(assembled(in, t)); },
      [in](const Tensors& t) { return composed(assembled(in, t)); }, kWide, amplification);
  cases.back().roundings = roundings;
  inputs.push_back(RandomTensors(seed + 1).normal({form.rows, form.queries, form.heads, form.value_size}));
  for (const Tensor& stored : composed(in)) {
    inputs.push_back(converted(converted(stored, DType::f32), DType::f64));
  }
  add_operation(
      cases, "attention_backward", form.name, inputs, terms,
      [in](const Tensors& t) { return run_backward(assembled(in, t), t); },
      [in](const Tensors& t) { return composed_gradients(assembled(in, t), t[11], t[12], t[13]); }, kWide,
      amplification);
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
  return {dgate, dattended, delta_of(dattended, attended)};
}

void add_delta_cases(std::vector<OpCase>& cases) {
  RandomTensors random(5);
  // Features: one, odd, whole packs of a warp, and of a block.
  for (const auto& shape : {Shape{1, 1, 1, 1}, Shape{2, 5, 3, 7}, Shape{2, 9, 2, 64}, Shape{1, 3, 2, 2056}}) {
    const std::string name = std::to_string(shape[2]) + "x" + std::to_string(shape[3]);
    add_operation(
        cases, "attention_delta", name, {random.normal(shape), random.normal(shape)}, shape[3],
        [](const Tensors& t) {
          const Tensor delta = wide_beside(t[0], {t[0].dim(0), t[0].dim(2), t[0].dim(1)});
          ops::attention_delta(delta, t[0], t[1]);
          return Tensors{delta};
        },
        [](const Tensors& t) { return Tensors{delta_of(t[0], t[1])}; });
    add_operation(
        cases, "attention_gate_backward", name, {random.normal(shape), random.normal(shape, 3), random.normal(shape)},
        shape[3],
        [](const Tensors& t) {
          const Tensor dgate = dirty(t[0]);
          const Tensor dattended = dirty(t[0]);
          const Tensor delta = wide_beside(t[0], {t[0].dim(0), t[0].dim(2), t[0].dim(1)});
          ops::attention_gate_backward(dgate, dattended, delta, t[0], t[1], t[2]);
          return Tensors{dgate, dattended, delta};
        },
        [](const Tensors& t) { return gate_backward_reference(t[0], t[1], t[2]); });
  }
}

}  // namespace

void add_attention_cases(std::vector<OpCase>& cases) {
  add_delta_cases(cases);
  // rows, queries, heads, key heads, sizes of keys and of values, slots
  const std::vector<AttentionForm> forms{
      of_sizes("one", {1, 1, 1, 1, 1, 1, 0}),
      of_sizes("nothing_visible", {1, 1, 2, 2, 3, 3, 0}, {.attend_self = false, .bias = true, .relative = true}),
      of_sizes("causal", {5, 7, 3, 3, 5, 2, 0}),
      of_sizes("ring", {5, 3, 2, 2, 3, 3, 7}),
      of_sizes("ring_of_one", {2, 1, 2, 2, 3, 3, 1}, {.bias = true}),
      of_sizes("window", {2, 11, 2, 2, 3, 3, 6}, {.window = 3, .attend_self = false}),
      of_sizes("documents", {4, 13, 2, 2, 3, 3, 5}, {.documents = true, .bias = true, .relative = true}),
      of_sizes("grouped_heads", {2, 5, 6, 2, 4, 7, 4}, {.relative = true}),
      of_sizes("bias", {3, 9, 2, 2, 3, 3, 8}, {.bias = true, .spare_entries = 2}),
      of_sizes("relative", {3, 9, 2, 2, 3, 3, 8}, {.relative = true, .spare_entries = 2}),
      // More than one block of 64 queries and of 128 keys, none of them full.
      of_sizes("blocks", {1, 150, 1, 1, 3, 3, 141}, {.relative = true}),
      of_sizes("blocks_window", {2, 131, 2, 2, 3, 3, 300}, {.window = 70, .bias = true, .relative = true}),
      of_sizes("blocks_short_window", {2, 133, 2, 2, 3, 3, 9}, {.window = 2, .attend_self = false, .relative = true}),
      of_sizes("blocks_documents", {2, 137, 2, 2, 3, 3, 150}, {.documents = true, .bias = true}),
      of_sizes("dropout", {2, 67, 2, 2, 3, 3, 9}, {.bias = true, .dropout = 0.4}),
      // The farthest key alone in the last of 64 or 128 distances.
      of_sizes("window_of_one", {2, 5, 2, 2, 3, 3, 0}, {.window = 1, .relative = true}),
      of_sizes("window_of_64", {1, 2, 2, 2, 3, 3, 64}, {.window = 64, .bias = true, .relative = true}),
      // Groups of four random numbers begin anywhere.
      of_sizes("dropout_relative", {2, 3, 3, 1, 3, 3, 4}, {.bias = true, .relative = true, .dropout = 0.3}),
      // Heads of more than 64 and 128 features, in whole vectors and not.
      of_sizes("wide_heads", {1, 6, 2, 1, 72, 136, 3}, {.relative = true, .scale = 0.1}),
      of_sizes("wide_odd_heads", {1, 6, 1, 1, 133, 70, 3}, {.bias = true, .relative = true, .scale = 0.1}),
      // More terms than the CPU computes at once.
      of_sizes("many_terms", {1, 70, 1, 1, 3, 3, 1090}, {.relative = true}),
      of_sizes("many_terms_end", {1, 70, 1, 1, 3, 3, 1190}, {.relative = true, .spare_entries = -77}),
      // Keys beyond the tables.
      of_sizes("terms_end", {3, 9, 2, 2, 3, 3, 8}, {.bias = true, .relative = true, .spare_entries = -7}),
      of_sizes("terms_end_blocks", {1, 150, 2, 2, 3, 3, 141}, {.relative = true, .spare_entries = -200}),
      of_sizes("terms_end_window", {2, 131, 2, 2, 3, 3, 300},
               {.window = 210, .bias = true, .relative = true, .spare_entries = -70}),
      of_sizes("large_logits", {1, 9, 2, 2, 3, 3, 6}, {.scale = 30}),
      // Heads in whole chunks of 8 features: tensor cores in bf16.
      of_sizes("chunks_one", {1, 1, 1, 1, 8, 8, 0}),
      of_sizes("chunks", {1, 150, 2, 1, 16, 8, 70}, {.bias = true, .scale = 0.2}),
      of_sizes("chunks_documents", {1, 137, 1, 1, 24, 40, 150}, {.documents = true, .bias = true, .scale = 0.2}),
      of_sizes("chunks_relative", {1, 133, 2, 2, 16, 24, 141},
               {.window = 100, .relative = true, .spare_entries = 3, .scale = 0.2}),
      of_sizes("chunks_terms_end", {2, 67, 1, 1, 8, 16, 80},
               {.attend_self = false, .bias = true, .relative = true, .spare_entries = -60, .scale = 0.3}),
      of_sizes("chunks_wide", {1, 70, 2, 1, 72, 136, 3}, {.relative = true, .scale = 0.1}),
      of_sizes("chunks_widest", {1, 130, 1, 1, 128, 128, 66}, {.window = 80, .scale = 0.08}),
      of_sizes("chunks_dropout", {2, 70, 2, 2, 16, 16, 9},
               {.bias = true, .relative = true, .dropout = 0.4, .scale = 0.2}),
      // Heads of 64 to 128 features, one query and several tiles.
      of_sizes("panels_one", {2, 1, 2, 1, 64, 40, 3}, {.scale = 0.2}),
      of_sizes("panels", {1, 150, 2, 1, 64, 64, 70}, {.bias = true, .scale = 0.12}),
      of_sizes("panels_documents", {2, 137, 1, 1, 40, 64, 150}, {.documents = true, .scale = 0.15}),
      of_sizes("panels_window", {1, 290, 1, 1, 64, 48, 131},
               {.window = 70, .attend_self = false, .bias = true, .spare_entries = -20, .scale = 0.12}),
      of_sizes("panels_wide", {1, 140, 2, 1, 128, 104, 67}, {.documents = true, .bias = true, .scale = 0.08}),
      of_sizes("panels_large_logits", {1, 70, 1, 1, 72, 16, 6}, {.scale = 3}),
      // Values of more than one slice of 256 features; tiles of which none is full.
      of_sizes("chunks_wide_values", {2, 70, 2, 1, 16, 328, 70},
               {.window = 90, .bias = true, .relative = true, .dropout = 0.3, .scale = 0.2}),
      of_sizes("chunks_wide_documents", {1, 133, 1, 1, 128, 264, 66}, {.documents = true, .scale = 0.08}),
      // Few queries of many carried keys.
      of_sizes("chunks_wide_keys", {1, 3, 1, 1, 8, 136, 560}, {.scale = 0.2}),
      // The same with relative terms.
      of_sizes("panels_relative_one", {2, 1, 2, 1, 64, 40, 3}, {.relative = true, .scale = 0.15}),
      of_sizes("panels_relative", {1, 150, 2, 1, 64, 64, 70}, {.bias = true, .relative = true, .scale = 0.08}),
      of_sizes("panels_relative_documents", {2, 137, 1, 1, 40, 64, 150},
               {.documents = true, .relative = true, .spare_entries = 5, .scale = 0.1}),
      of_sizes("panels_relative_window", {1, 290, 2, 2, 64, 48, 131},
               {.window = 130, .attend_self = false, .relative = true, .scale = 0.08}),
      of_sizes("panels_relative_terms_end", {1, 200, 1, 1, 64, 64, 141},
               {.window = 190, .bias = true, .relative = true, .spare_entries = -70, .scale = 0.08}),
      of_sizes("panels_relative_wide", {1, 140, 2, 1, 128, 104, 67},
               {.documents = true, .bias = true, .relative = true, .scale = 0.06}),
      // Wide values behind a window, in several slices.
      of_sizes("wide_window", {1, 530, 1, 1, 8, 136, 20}, {.window = 30, .bias = true, .scale = 0.3}),
  };
  uint32_t seed = 100;
  for (const AttentionForm& form : forms) add_case(cases, form, seed += 2);
}

}  // namespace quire::test
