// The slots themselves, in one place.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/knn.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/position.h"
#include "kernels/rotary.h"
#include "kernels/state.h"
#include "kernels/vq.h"

#define QUIRE_SLOT(name) decltype(name) name(#name)

namespace quire::ops {

namespace {

double gemm_flops(const Tensor& c, const Tensor& a, const Tensor&, const GemmOptions& options) {
  return 2.0 * static_cast<double>(c.dim(0)) * static_cast<double>(c.dim(1)) *
         static_cast<double>(a.dim(options.transpose_a ? 0 : 1));
}

// Pairs of a query and a key it sees, times heads.
double attention_pairs(const AttentionInputs& in) {
  const Tensor on_host = in.first_visible.to(kCpu);
  const int32_t* first = on_host.data<int32_t>();
  const int64_t queries = in.q.dim(1);
  double pairs = 0;
  for (int64_t i = 0; i < on_host.numel(); ++i) {
    pairs += static_cast<double>(std::max<int64_t>(0, i % queries + (in.attend_self ? 1 : 0) - first[i]));
  }
  return pairs * static_cast<double>(in.q.dim(2));
}

// Products of a logit (one more for r) and with a value.
double attention_flops(const Tensor&, const Tensor&, const AttentionInputs& in) {
  const auto key = static_cast<double>(in.q.dim(3));
  return attention_pairs(in) * 2 * (key * (in.r.defined() ? 2 : 1) + static_cast<double>(in.v.dim(3)));
}

// Logits once more, and two products for each of the forward pass.
double attention_backward_flops(const AttentionGradients&, const Tensor&, const Tensor&, const Tensor&,
                                const AttentionInputs& in) {
  const auto key = static_cast<double>(in.q.dim(3));
  return attention_pairs(in) * 2 * (key * (in.r.defined() ? 6 : 3) + 2 * static_cast<double>(in.v.dim(3)));
}

// Pairs of a query and an entry that is read: of all readable ones, or of at most `wanted`.
double memory_pairs(const Tensor& q, const KnnMemory& memory, int64_t wanted) {
  const Tensor on_host = memory.length.to(kCpu);
  double entries = 0;
  for (int64_t r = 0; r < on_host.numel(); ++r) {
    entries += static_cast<double>(std::min<int64_t>(on_host.data<int32_t>()[r], wanted));
  }
  return entries * static_cast<double>(q.dim(1) * q.dim(2));
}

double knn_search_flops(const Tensor&, const Tensor&, const Tensor& q, const KnnMemory& memory, KnnSearch) {
  return memory_pairs(q, memory, memory.keys.dim(1)) * 2 * static_cast<double>(q.dim(3));
}

// Of entries that are retrieved once each, as many as there are.
double knn_attention_pairs(const KnnAttentionInputs& in) {
  return memory_pairs(in.q, in.memory, in.index.dim(3));
}

double knn_attention_flops(const Tensor&, const Tensor&, const KnnAttentionInputs& in, bool) {
  return knn_attention_pairs(in) * 2 * static_cast<double>(in.q.dim(3) + in.memory.values.dim(3));
}

double knn_attention_backward_flops(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                    const KnnAttentionInputs& in, bool) {
  return knn_attention_pairs(in) * 2 * static_cast<double>(2 * in.q.dim(3) + in.memory.values.dim(3));
}

double nearest_code_flops(const Tensor&, const Tensor&, const Tensor&, const Tensor& x, const Tensor& codebook) {
  return 2.0 * static_cast<double>(x.numel()) * static_cast<double>(codebook.dim(1));
}

// Of a logit with all codewords, and of their values.
double code_attention_pairs(const CodeAttentionInputs& in) {
  return static_cast<double>(in.q.numel() / in.q.dim(3)) * static_cast<double>(in.codebook.dim(1));
}

double code_attention_flops(const Tensor&, const Tensor&, const CodeAttentionInputs& in) {
  return code_attention_pairs(in) * 2 * static_cast<double>(in.q.dim(3) + in.means.dim(4));
}

double code_attention_backward_flops(const Tensor&, const Tensor&, const Tensor& dmeans, const Tensor&, const Tensor&,
                                     const Tensor&, const CodeAttentionInputs& in) {
  return code_attention_pairs(in) * 2 *
         static_cast<double>(2 * in.q.dim(3) + (dmeans.defined() ? 2 : 1) * in.means.dim(4));
}

}  // namespace

decltype(gemm) gemm("gemm", gemm_flops);
QUIRE_SLOT(copy);
QUIRE_SLOT(convert);
QUIRE_SLOT(add);
QUIRE_SLOT(multiply);
QUIRE_SLOT(scale);
QUIRE_SLOT(scale_by);
QUIRE_SLOT(add_bias);
QUIRE_SLOT(sum_rows);
QUIRE_SLOT(scale_heads);
QUIRE_SLOT(scale_heads_backward);
QUIRE_SLOT(activation);
QUIRE_SLOT(activation_backward);
QUIRE_SLOT(swiglu);
QUIRE_SLOT(swiglu_backward);
QUIRE_SLOT(dropout);
QUIRE_SLOT(rms_norm);
QUIRE_SLOT(rms_norm_backward);
QUIRE_SLOT(layer_norm);
QUIRE_SLOT(layer_norm_backward);
QUIRE_SLOT(l2_norm);
QUIRE_SLOT(l2_norm_backward);
QUIRE_SLOT(embedding);
QUIRE_SLOT(embedding_backward);
QUIRE_SLOT(cross_entropy);
QUIRE_SLOT(cross_entropy_backward);
QUIRE_SLOT(sum_all);
QUIRE_SLOT(sinusoid);
QUIRE_SLOT(sinusoid_at);
QUIRE_SLOT(gather_columns);
QUIRE_SLOT(gather_columns_backward);
QUIRE_SLOT(rotary_table);
QUIRE_SLOT(rotary);
QUIRE_SLOT(squared_norm);
QUIRE_SLOT(step_outcome);
QUIRE_SLOT(adamw);
QUIRE_SLOT(adafactor);
QUIRE_SLOT(moving_average);
QUIRE_SLOT(ring_append);
QUIRE_SLOT(ring_gather);
decltype(nearest_code) nearest_code("nearest_code", nearest_code_flops);
QUIRE_SLOT(nearest_code_backward);
QUIRE_SLOT(masked_sum);
QUIRE_SLOT(code_statistics);
QUIRE_SLOT(lookup_codes);
QUIRE_SLOT(gather_vectors);
QUIRE_SLOT(codebook_update);
QUIRE_SLOT(codewords);
QUIRE_SLOT(code_caches);
QUIRE_SLOT(code_caches_backward);
decltype(code_attention) code_attention("code_attention", code_attention_flops);
decltype(code_attention_backward) code_attention_backward("code_attention_backward", code_attention_backward_flops);
decltype(attention) attention("attention", attention_flops);
decltype(attention_backward) attention_backward("attention_backward", attention_backward_flops);
decltype(knn_search) knn_search("knn_search", knn_search_flops);
decltype(knn_attention) knn_attention("knn_attention", knn_attention_flops);
decltype(knn_attention_backward) knn_attention_backward("knn_attention_backward", knn_attention_backward_flops);
QUIRE_SLOT(drop_entries);
QUIRE_SLOT(gate_heads);
QUIRE_SLOT(gate_heads_backward);
QUIRE_SLOT(softmax_share);
QUIRE_SLOT(quantize_vectors);
QUIRE_SLOT(dequantize_vectors);

}  // namespace quire::ops
