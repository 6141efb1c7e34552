// The sizes of a call on an external memory, and the checks that the kernels of all devices make on its operands. They
// throw Error(internal). The values in head, length and index are not checked, since the host would have to wait for
// the device.
#pragma once

#include "kernels/knn.h"

namespace quire {

struct KnnSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size, slots, top_k;

  // q [R, T, H, D] and index [R, T, H, K].
  KnnSizes(const Tensor& q, const Tensor& index, const ops::KnnMemory& memory);
  int64_t group() const { return heads / kv_heads; }  // query heads that read one key head
};

void check_knn_search(const KnnSizes& sizes, const Tensor& index, const Tensor& score, const Tensor& q,
                      const ops::KnnMemory& memory);
void check_knn_attention(const KnnSizes& sizes, const Tensor& out, const Tensor& lse,
                         const ops::KnnAttentionInputs& in);
void check_knn_attention_backward(const KnnSizes& sizes, const Tensor& dq, const Tensor& dout, const Tensor& out,
                                  const Tensor& lse, const ops::KnnAttentionInputs& in);

void check_gate_heads(const char* op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
                      const Tensor& content, const Tensor& open);
void check_gate_heads_backward(const Tensor& da, const Tensor& db, const Tensor& dbias, const Tensor& dcontent,
                               const Tensor& dout, const Tensor& a, const Tensor& b, const Tensor& bias,
                               const Tensor& content, const Tensor& open);
void check_drop_entries(const Tensor& index, const Tensor& keep);
void check_softmax_share(const Tensor& share, const Tensor& part, const Tensor& whole);
// Used by quantize_vectors and dequantize_vectors.
void check_quantized(const char* op, const Tensor& quantized, const Tensor& scale, const Tensor& x);

}  // namespace quire
