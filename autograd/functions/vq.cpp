#include "autograd/functions/vq.h"

#include <memory>

#include "autograd/functions/basic.h"
#include "core/check.h"
#include "kernels/elementwise.h"
#include "kernels/vq_sizes.h"

namespace quire {

Quantized quantize(Tape& tape, const Variable& x, const Tensor& codebook, const Tensor& mask, bool straight_through) {
  const Tensor in = x.value();
  QUIRE_CHECK(in.rank() == 4, "quantize: {} is not [R, T, H, D]", in.shape().to_string());
  const int64_t count = in.dim(0) * in.dim(1);
  const Shape vectors{count, in.dim(2), in.dim(3)};
  const Tensor keys = Tensor::empty_like(in);
  const Tensor codes = Tensor::empty({in.dim(0), in.dim(1), in.dim(2)}, DType::i32, in.device());
  const Tensor errors = Tensor::empty({count, in.dim(2)}, wide_type(in.dtype()), in.device());
  ops::nearest_code(codes.reshape({count, in.dim(2)}), keys.reshape(vectors), errors, in.reshape(vectors), codebook);
  const Tensor total = Tensor::empty({1}, DType::f64, in.device());
  ops::masked_sum(total, errors, mask);

  const Variable error = tape.result("commitment", total, {&x}, [x, keys, mask, vectors](const Tensor& derror) {
    const Tensor dx = Tensor::empty_like(keys);
    ops::nearest_code_backward(dx.reshape(vectors), Tensor(), x.value().reshape(vectors), keys.reshape(vectors), mask,
                               derror);
    x.gradient()->add(dx);
  });
  Quantized result{Variable::constant(keys), codes, error};
  if (straight_through) result.keys = with_gradient_to(tape, keys, x);
  return result;
}

namespace {

Tensor scaled(const Tensor& x, double factor) {
  if (factor == 1 || !x.defined()) return x;
  const Tensor y = Tensor::empty_like(x);
  ops::scale(y, x, factor);
  return y;
}

Tensor zeros_like(const Tensor& x) {
  const Tensor zeros = Tensor::empty_like(x);
  zeros.zero();
  return zeros;
}

// total += factor * term
void add_scaled(const Tensor& total, const Tensor& term, double factor) {
  if (total.defined()) ops::add(total, total, term, 1, factor);
}

// The values that the backward pass needs.
struct VqAttention {
  AttentionVariables x;
  ops::AttentionInputs window;
  ops::CodeCacheInputs caches;
  ops::TokensByCode by_code;
  ops::CodeAttentionInputs codes;
  bool through_cache;
  int64_t block;
  Tensor first_in_block;
  Tensor out, lse;
  // The delta that the gate's backward pass computes for that of attention.
  std::shared_ptr<Tensor> delta = std::make_shared<Tensor>();

  void backward(const Tensor& dout) const {
    ops::AttentionGradients g = attention_gradients(x);
    g.delta = *delta;
    if (!g.delta.defined()) {
      g.delta = Tensor::empty_like(lse);
      ops::attention_delta(g.delta, dout, out);
    }
    if (through_cache) {
      ops::attention_backward(g, dout, out, lse, window);
    } else {
      window_backward_within_blocks(g, dout);
    }
    if (codes.codebook.defined()) codes_backward(g, dout);
    give_gradients(x, g);
  }

  // Keys and values of earlier blocks are constants: gradients come from the pairs within blocks, with the
  // probabilities of the whole softmax.
  void window_backward_within_blocks(const ops::AttentionGradients& g, const Tensor& dout) const {
    ops::AttentionGradients of_queries = g;
    of_queries.dk = Tensor();
    of_queries.dv = Tensor();
    ops::attention_backward(of_queries, dout, out, lse, window);
    if (!g.dk.defined() && !g.dv.defined()) return;
    ops::AttentionGradients of_keys;
    of_keys.delta = g.delta;
    of_keys.dq = Tensor::empty_like(g.dq);
    of_keys.dk = g.dk;
    of_keys.dv = g.dv;
    ops::AttentionInputs within = window;
    within.first_visible = first_in_block;
    ops::attention_backward(of_keys, dout, out, lse, within);
  }

  void codes_backward(const ops::AttentionGradients& g, const Tensor& dout) const {
    const bool to_values = through_cache && g.dv.defined();
    const Tensor dmeans = to_values ? Tensor::empty_like(codes.means) : Tensor();
    if (window.scale == 1) {
      ops::code_attention_backward(g.dq, g.du, dmeans, dout, g.delta, lse, codes);
    } else {
      const Tensor dq = zeros_like(codes.q);
      const Tensor du = g.du.defined() ? zeros_like(codes.u) : Tensor();
      ops::code_attention_backward(dq, du, dmeans, dout, g.delta, lse, codes);
      add_scaled(g.dq, dq, window.scale);
      add_scaled(g.du, du, window.scale);
    }
    if (to_values) ops::code_caches_backward(g.dv, dmeans, codes.counts, caches, by_code);
  }
};

// Returns silu(gate) * out for attention whose result has no other use. The gate's backward pass reads and writes
// everything that the attention's delta needs, so it computes delta too.
Variable gated(Tape& tape, const Variable& gate, const Variable& out, const std::shared_ptr<Tensor>& delta) {
  const Shape shape = out.value().shape();
  const Tensor of_gate = gate.value().reshape(shape);
  const Tensor y = Tensor::empty_like(out.value());
  ops::swiglu(y, of_gate, out.value());
  return tape.result("gate", y, {&gate, &out}, [gate, out, of_gate, shape, delta](const Tensor& dout) {
    const Tensor dgate = Tensor::empty_like(dout);
    const Tensor dattended = Tensor::empty_like(dout);
    *delta = Tensor::empty({shape[0], shape[2], shape[1]}, wide_type(dout.dtype()), dout.device());
    ops::attention_gate_backward(dgate, dattended, *delta, dout, of_gate, out.value());
    if (gate.needs_gradient()) gate.gradient()->add(dgate.reshape(gate.value().shape()));
    if (out.needs_gradient()) out.gradient()->add(dattended);
  });
}

}  // namespace

VqAttentionResult vq_attention(Tape& tape, const VqAttentionVariables& x, const VqAttentionSettings& settings) {
  VqAttention call{x.keys,
                   attention_inputs(x.keys, settings.attention),
                   settings.caches,
                   {},
                   {},
                   settings.through_cache,
                   settings.block,
                   settings.first_in_block,
                   {},
                   {}};
  QUIRE_CHECK(call.through_cache || call.first_in_block.defined(),
              "vq_attention: constant caches need the first key of each query's own block");
  call.window.terms_end = true;
  const Tensor& q = call.window.q;
  const Tensor& v = call.window.v;
  const DType wide = wide_type(q.dtype());
  call.out = Tensor::empty({q.dim(0), q.dim(1), q.dim(2), v.dim(3)}, q.dtype(), q.device());
  call.lse = Tensor::empty({q.dim(0), q.dim(2), q.dim(1)}, wide, q.device());
  ops::attention(call.out, call.lse, call.window);

  VqAttentionResult result;
  if (x.codebook.defined()) {
    call.caches.v = v;
    call.caches.window_v = call.window.cache_v;
    call.caches.tokens.window_head = call.window.cache_head;
    const int64_t count = call.caches.tokens.origin.dim(1);
    call.codes.q = scaled(q, call.window.scale);
    call.codes.u = scaled(call.window.u, call.window.scale);
    call.codes.codebook = x.codebook;
    call.codes.block = settings.block;
    call.codes.means =
        Tensor::empty({v.dim(0), count - 1, v.dim(2), x.codebook.dim(1), v.dim(3)}, v.dtype(), v.device());
    call.codes.counts = Tensor::empty({v.dim(0), count, v.dim(2), x.codebook.dim(1)}, wide, q.device());
    result.mean = Tensor::empty_like(call.caches.mean);
    call.by_code = empty_tokens_by_code(call.caches.tokens, x.codebook.dim(1));
    ops::sort_by_code(call.by_code, call.caches.tokens);
    ops::code_caches(call.codes.means, result.mean, call.codes.counts, call.caches, call.by_code);
    ops::code_attention(call.out, call.lse, call.codes);
    const Tensor last = call.codes.counts.select(1, count - 1);
    result.count = Tensor::empty_like(last);
    ops::copy(result.count, last);
  }
  const AttentionVariables& k = x.keys;
  result.out =
      tape.result("vq_attention", call.out, {&k.q, &k.k, &k.v, &k.cache_k, &k.cache_v, &k.bias, &k.r, &k.u, &k.v_bias},
                  [call](const Tensor& dout) { call.backward(dout); });
  if (x.gate.defined()) result.out = gated(tape, x.gate, result.out, call.delta);
  return result;
}

}  // namespace quire
