#include "kernels/chunk_sizes.h"

#include <limits>

#include "core/check.h"

namespace quire {

namespace {

void require_chunks(const char* name, const Tensor& tensor, const Shape& shape, DType dtype) {
  QUIRE_CHECK(tensor.defined() && tensor.shape() == shape && tensor.dtype() == dtype && tensor.is_contiguous(),
              "chunk_attention: {} is {} {}; it must be {} {} and contiguous", name,
              tensor.defined() ? tensor.shape().to_string() : "undefined", name_of(tensor.dtype()), shape.to_string(),
              name_of(dtype));
}

int64_t axis_of_chunks(const char* name, const Tensor& tensor, int rank, int axis) {
  QUIRE_CHECK(tensor.defined() && tensor.rank() == rank, "chunk_attention: {} has {} axes; it must have {}", name,
              tensor.defined() ? tensor.rank() : 0, rank);
  return tensor.dim(axis);
}

}  // namespace

ChunkSizes::ChunkSizes(const ops::ChunkAttentionInputs& in)
    : rows(axis_of_chunks("q", in.q, 4, 0)),
      queries(in.q.dim(1)),
      heads(in.q.dim(2)),
      kv_heads(axis_of_chunks("keys", in.keys, 5, 1)),
      size(in.q.dim(3)),
      value_size(axis_of_chunks("values", in.values, 5, 4)),
      chunks(in.keys.dim(2)),
      length(in.keys.dim(3)),
      chosen(axis_of_chunks("chosen", in.chosen, 4, 3)),
      width(axis_of_chunks("weight", in.weight, 4, 3)) {
  QUIRE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "chunk_attention: {} query heads are no multiple of {} key heads",
              heads, kv_heads);
  QUIRE_CHECK(length > 0 && width >= chosen, "chunk_attention: chunks of {} keys, {} weights for {} chunks", length,
              width, chosen);
  const DType type = in.q.dtype();
  require_chunks("q", in.q, in.q.shape(), type);
  require_chunks("keys", in.keys, {rows, kv_heads, chunks, length, size}, type);
  require_chunks("values", in.values, {rows, kv_heads, chunks, length, value_size}, type);
  require_chunks("weight", in.weight, {rows, heads, queries, width}, wide_type(type));
  require_chunks("chosen", in.chosen, {rows, kv_heads, queries, chosen}, DType::i32);
  require_chunks("begin", in.begin, {rows, kv_heads, chunks + 1}, DType::i32);
  require_chunks("reads", in.reads, {rows, kv_heads, queries * chosen}, DType::i32);
}

void check_chunk_reads(const Tensor& begin, const Tensor& reads, const Tensor& chosen) {
  const int64_t rows = axis_of_chunks("chosen", chosen, 4, 0), heads = chosen.dim(1);
  QUIRE_CHECK(chosen.numel() < std::numeric_limits<int32_t>::max(),
              "chunk_attention: {} entries of lists; numbers have 31 bits", chosen.numel());
  require_chunks("chosen", chosen, chosen.shape(), DType::i32);
  require_chunks("begin", begin, {rows, heads, axis_of_chunks("begin", begin, 3, 2)}, DType::i32);
  require_chunks("reads", reads, {rows, heads, chosen.dim(2) * chosen.dim(3)}, DType::i32);
}

void check_chunk_attention(const ChunkSizes& s, const Tensor& out, const Tensor& lse,
                           const ops::ChunkAttentionInputs& in) {
  require_chunks("out", out, {s.rows, s.queries, s.heads, s.value_size}, in.q.dtype());
  require_chunks("lse", lse, {s.rows, s.heads, s.queries, s.chosen}, wide_type(in.q.dtype()));
}

void check_chunk_attention_backward(const ChunkSizes& s, const ops::ChunkAttentionGradients& g, const Tensor& dout,
                                    const Tensor& lse, const ops::ChunkAttentionInputs& in) {
  const DType type = in.q.dtype();
  require_chunks("dout", dout, {s.rows, s.queries, s.heads, s.value_size}, type);
  require_chunks("lse", lse, {s.rows, s.heads, s.queries, s.chosen}, wide_type(type));
  require_chunks("dq", g.dq, in.q.shape(), type);
  require_chunks("dkeys", g.dkeys, in.keys.shape(), type);
  require_chunks("dvalues", g.dvalues, in.values.shape(), type);
  require_chunks("dweight", g.dweight, in.weight.shape(), in.weight.dtype());
}

}  // namespace quire
