#include "kernels/knn_sizes.h"

#include "core/check.h"
#include "kernels/checks.h"

namespace quire {

namespace {

bool has_shape(const Tensor& tensor, std::initializer_list<int64_t> shape) {
  return tensor.shape() == Shape(shape);
}

void check_stored(const char* op, const char* name, const KnnSizes& s, const Tensor& stored, const Tensor& scale,
                  DType query) {
  const DType type = stored.dtype();
  const bool scaled = ops::has_scale(type);
  QUIRE_CHECK(type == DType::f32 || type == DType::bf16 || scaled || (type == DType::f64 && query == DType::f64),
              "{}: {} stored as {} beside {} queries", op, name, name_of(type), name_of(query));
  QUIRE_CHECK(stored.is_contiguous(), "{}: {} are not contiguous", op, name);
  QUIRE_CHECK(scaled == scale.defined() && (!scaled || (scale.dtype() == DType::bf16 && scale.is_contiguous() &&
                                                        has_shape(scale, {s.rows, s.slots, s.kv_heads}))),
              "{}: {} stored as {} with {} scales {}; i8 and f8 need one bf16 scale a vector and nothing else has any",
              op, name, name_of(type), name_of(scale.dtype()), scale.shape().to_string());
}

void check_call(const char* op, const KnnSizes& s, const Tensor& q, const Tensor& index, const ops::KnnMemory& memory) {
  QUIRE_CHECK(is_floating(q.dtype()) && q.is_contiguous() && index.is_contiguous() && index.dtype() == DType::i32 &&
                  has_shape(index, {s.rows, s.queries, s.heads, s.top_k}),
              "{}: index {} {} for queries {} {}", op, name_of(index.dtype()), index.shape().to_string(),
              name_of(q.dtype()), q.shape().to_string());
  QUIRE_CHECK(
      has_shape(memory.keys, {s.rows, s.slots, s.kv_heads, s.size}) && s.kv_heads > 0 && s.heads % s.kv_heads == 0,
      "{}: keys {} for queries {}", op, memory.keys.shape().to_string(), q.shape().to_string());
  QUIRE_CHECK(memory.head.numel() == s.rows && memory.length.numel() == s.rows && memory.head.dtype() == DType::i32 &&
                  memory.length.dtype() == DType::i32,
              "{}: {} heads and {} lengths of rings for {} rows", op, memory.head.numel(), memory.length.numel(),
              s.rows);
  check_stored(op, "keys", s, memory.keys, memory.key_scale, q.dtype());
}

void check_attention_call(const char* op, const KnnSizes& s, const Tensor& out, const Tensor& lse,
                          const ops::KnnAttentionInputs& in) {
  check_call(op, s, in.q, in.index, in.memory);
  QUIRE_CHECK(has_shape(in.memory.values, {s.rows, s.slots, s.kv_heads, s.value_size}) &&
                  in.memory.values.dtype() == in.memory.keys.dtype(),
              "{}: values {} {} beside keys {} {}", op, name_of(in.memory.values.dtype()),
              in.memory.values.shape().to_string(), name_of(in.memory.keys.dtype()),
              in.memory.keys.shape().to_string());
  check_stored(op, "values", s, in.memory.values, in.memory.value_scale, in.q.dtype());
  QUIRE_CHECK(has_shape(out, {s.rows, s.queries, s.heads, s.value_size}) && out.is_contiguous() &&
                  out.dtype() == in.q.dtype() && has_shape(lse, {s.rows, s.heads, s.queries}) && lse.is_contiguous() &&
                  lse.dtype() == wide_type(in.q.dtype()),
              "{}: out {} {} and lse {} {} for queries {} {} and values {}", op, name_of(out.dtype()),
              out.shape().to_string(), name_of(lse.dtype()), lse.shape().to_string(), name_of(in.q.dtype()),
              in.q.shape().to_string(), in.memory.values.shape().to_string());
}

}  // namespace

KnnSizes::KnnSizes(const Tensor& q, const Tensor& index, const ops::KnnMemory& memory)
    : rows(0), queries(0), heads(0), kv_heads(0), size(0), value_size(0), slots(0), top_k(0) {
  QUIRE_CHECK(q.rank() == 4 && index.rank() == 4 && memory.keys.rank() == 4 &&
                  (!memory.values.defined() || memory.values.rank() == 4),
              "knn: q {} is not [R, T, H, D], index {} not [R, T, H, K] or keys {} not [R, C, Hk, D]",
              q.shape().to_string(), index.shape().to_string(), memory.keys.shape().to_string());
  rows = q.dim(0);
  queries = q.dim(1);
  heads = q.dim(2);
  size = q.dim(3);
  slots = memory.keys.dim(1);
  kv_heads = memory.keys.dim(2);
  value_size = memory.values.defined() ? memory.values.dim(3) : 0;
  top_k = index.dim(3);
}

void check_knn_search(const KnnSizes& s, const Tensor& index, const Tensor& score, const Tensor& q,
                      const ops::KnnMemory& memory) {
  check_call("knn_search", s, q, index, memory);
  QUIRE_CHECK(score.shape() == index.shape() && score.is_contiguous() && score.dtype() == wide_type(q.dtype()),
              "knn_search: score {} {} beside index {}", name_of(score.dtype()), score.shape().to_string(),
              index.shape().to_string());
}

void check_knn_attention(const KnnSizes& s, const Tensor& out, const Tensor& lse, const ops::KnnAttentionInputs& in) {
  check_attention_call("knn_attention", s, out, lse, in);
}

void check_knn_attention_backward(const KnnSizes& s, const Tensor& dq, const Tensor& dout, const Tensor& out,
                                  const Tensor& lse, const ops::KnnAttentionInputs& in) {
  check_attention_call("knn_attention_backward", s, out, lse, in);
  require_alike("knn_attention_backward", {&dq, &in.q});
  require_alike("knn_attention_backward", {&dout, &out});
}

void check_gate_heads(const char* op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
                      const Tensor& content, const Tensor& open) {
  QUIRE_CHECK(a.rank() == 4, "{}: {} is not [R, T, H, D]", op, a.shape().to_string());
  require_alike(op, {&a, &b, &out});
  QUIRE_CHECK(bias.numel() == a.dim(2) && bias.is_contiguous() && bias.dtype() == wide_type(a.dtype()),
              "{}: bias {} {} for {} {}", op, name_of(bias.dtype()), bias.shape().to_string(), name_of(a.dtype()),
              a.shape().to_string());
  QUIRE_CHECK(!content.defined() || (has_shape(content, {a.dim(0) * a.dim(1), a.dim(2)}) && content.is_contiguous() &&
                                     content.dtype() == a.dtype()),
              "{}: content {} {} for {} {}", op, name_of(content.dtype()), content.shape().to_string(),
              name_of(a.dtype()), a.shape().to_string());
  QUIRE_CHECK(!open.defined() || (open.numel() == a.dim(0) && open.dtype() == DType::u8 && open.is_contiguous()),
              "{}: open {} {} for {} rows", op, name_of(open.dtype()), open.shape().to_string(), a.dim(0));
}

void check_gate_heads_backward(const Tensor& da, const Tensor& db, const Tensor& dbias, const Tensor& dcontent,
                               const Tensor& dout, const Tensor& a, const Tensor& b, const Tensor& bias,
                               const Tensor& content, const Tensor& open) {
  const char* const op = "gate_heads_backward";
  check_gate_heads(op, dout, a, b, bias, content, open);
  check_gate_heads(op, da, a, db, dbias, dcontent, open);
  QUIRE_CHECK(content.defined() == dcontent.defined(), "{}: {} content and {} gradient of it", op,
              content.defined() ? "a" : "no", dcontent.defined() ? "a" : "no");
}

void check_drop_entries(const Tensor& index, const Tensor& keep) {
  QUIRE_CHECK(index.rank() == 4 && keep.rank() == 2 && index.dtype() == DType::i32 && keep.dtype() == DType::u8 &&
                  index.is_contiguous() && keep.is_contiguous() && index.dim(0) == keep.dim(0) &&
                  index.dim(1) == keep.dim(1),
              "drop_entries: index {} {} for keep {} {}", name_of(index.dtype()), index.shape().to_string(),
              name_of(keep.dtype()), keep.shape().to_string());
}

void check_softmax_share(const Tensor& share, const Tensor& part, const Tensor& whole) {
  require_alike("softmax_share", {&share, &part, &whole});
}

void check_quantized(const char* op, const Tensor& quantized, const Tensor& scale, const Tensor& x) {
  QUIRE_CHECK(ops::has_scale(quantized.dtype()) && scale.dtype() == DType::bf16 && is_floating(x.dtype()) &&
                  quantized.is_contiguous() && scale.is_contiguous() && x.is_contiguous() &&
                  quantized.numel() == x.numel() && x.rank() > 0 && scale.numel() * x.dim(-1) == x.numel(),
              "{}: {} {} with {} scales {} beside {} {}", op, name_of(quantized.dtype()), quantized.shape().to_string(),
              name_of(scale.dtype()), scale.shape().to_string(), name_of(x.dtype()), x.shape().to_string());
}

}  // namespace quire
