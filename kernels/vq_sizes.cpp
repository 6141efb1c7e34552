#include "kernels/vq_sizes.h"

#include "core/check.h"

namespace quire {

namespace {

// Checks a tensor; undefined ones pass.
void require(const char* op, const char* name, const Tensor& tensor, const Shape& shape, DType dtype) {
  if (!tensor.defined()) return;
  QUIRE_CHECK(tensor.shape() == shape && tensor.dtype() == dtype && tensor.is_contiguous(),
              "{}: {} is {} {}; it must be {} {} and contiguous", op, name, tensor.shape().to_string(),
              name_of(tensor.dtype()), shape.to_string(), name_of(dtype));
}

void require_rank(const char* op, const char* name, const Tensor& tensor, int rank) {
  QUIRE_CHECK(tensor.defined() && tensor.rank() == rank, "{}: {} has {} axes; it must have {}", op, name,
              tensor.defined() ? tensor.rank() : 0, rank);
}

}  // namespace

CodeSizes check_nearest_code(const Tensor& codes, const Tensor& quantized, const Tensor& error, const Tensor& x,
                             const Tensor& codebook) {
  const char* const op = "nearest_code";
  require_rank(op, "x", x, 3);
  require_rank(op, "codebook", codebook, 3);
  const CodeSizes s{x.dim(0), x.dim(1), codebook.dim(1), x.dim(2)};
  QUIRE_CHECK(s.codes > 0, "{}: a codebook without codewords", op);
  require(op, "x", x, {s.vectors, s.kv_heads, s.size}, x.dtype());
  require(op, "codebook", codebook, {s.kv_heads, s.codes, s.size}, wide_type(x.dtype()));
  require(op, "codes", codes, {s.vectors, s.kv_heads}, DType::i32);
  require(op, "quantized", quantized, x.shape(), x.dtype());
  require(op, "error", error, {s.vectors, s.kv_heads}, wide_type(x.dtype()));
  return s;
}

void check_nearest_code_backward(const Tensor& dx, const Tensor& dquantized, const Tensor& x, const Tensor& quantized,
                                 const Tensor& mask, const Tensor& factor) {
  const char* const op = "nearest_code_backward";
  require_rank(op, "x", x, 3);
  require(op, "x", x, x.shape(), x.dtype());
  require(op, "dx", dx, x.shape(), x.dtype());
  require(op, "dquantized", dquantized, x.shape(), x.dtype());
  require(op, "quantized", quantized, x.shape(), x.dtype());
  require(op, "mask", mask, {x.dim(0)}, DType::u8);
  require(op, "factor", factor, {1}, DType::f64);
}

void check_masked_sum(const Tensor& total, const Tensor& x, const Tensor& mask) {
  const char* const op = "masked_sum";
  require_rank(op, "x", x, 2);
  require(op, "x", x, x.shape(), wide_type(x.dtype()));
  require(op, "mask", mask, {x.dim(0)}, DType::u8);
  require(op, "total", total, {1}, DType::f64);
}

CodeSizes check_code_statistics(const Tensor& counts, const Tensor& sums, const Tensor& x, const Tensor& codes,
                                const Tensor& mask) {
  const char* const op = "code_statistics";
  require_rank(op, "x", x, 3);
  require_rank(op, "sums", sums, 3);
  const CodeSizes s{x.dim(0), x.dim(1), sums.dim(1), x.dim(2)};
  const DType wide = wide_type(x.dtype());
  require(op, "x", x, x.shape(), x.dtype());
  require(op, "sums", sums, {s.kv_heads, s.codes, s.size}, wide);
  require(op, "counts", counts, {s.kv_heads, s.codes}, wide);
  require(op, "codes", codes, {s.vectors, s.kv_heads}, DType::i32);
  require(op, "mask", mask, {s.vectors}, DType::u8);
  return s;
}

CodeSizes check_lookup_codes(const Tensor& quantized, const Tensor& codes, const Tensor& codebook) {
  const char* const op = "lookup_codes";
  require_rank(op, "quantized", quantized, 3);
  require_rank(op, "codebook", codebook, 3);
  const CodeSizes s{quantized.dim(0), quantized.dim(1), codebook.dim(1), quantized.dim(2)};
  require(op, "quantized", quantized, quantized.shape(), quantized.dtype());
  require(op, "codes", codes, {s.vectors, s.kv_heads}, DType::i32);
  require(op, "codebook", codebook, {s.kv_heads, s.codes, s.size}, wide_type(quantized.dtype()));
  return s;
}

CodeSizes check_gather_vectors(const Tensor& to, const Tensor& x, const Tensor& index) {
  const char* const op = "gather_vectors";
  require_rank(op, "x", x, 3);
  require_rank(op, "to", to, 3);
  const CodeSizes s{x.dim(0), x.dim(1), to.dim(1), x.dim(2)};
  require(op, "x", x, x.shape(), x.dtype());
  require(op, "to", to, {s.kv_heads, s.codes, s.size}, wide_type(x.dtype()));
  require(op, "index", index, {s.kv_heads, s.codes}, DType::i32);
  return s;
}

void check_codebook_update(const Tensor& m, const Tensor& n, const Tensor& sums, const Tensor& counts,
                           const Tensor& seeds, const Tensor& present, const Tensor& control,
                           const ops::CodebookUpdate& options) {
  const char* const op = "codebook_update";
  require_rank(op, "m", m, 3);
  const Shape per_code{m.dim(0), m.dim(1)};
  const DType type = wide_type(m.dtype());
  require(op, "m", m, m.shape(), type);
  require(op, "n", n, per_code, type);
  require(op, "sums", sums, m.shape(), type);
  require(op, "counts", counts, per_code, type);
  require(op, "seeds", seeds, m.shape(), type);
  require(op, "present", present, per_code, type);
  require(op, "control", control, {2}, DType::f64);
  QUIRE_CHECK(options.decay >= 0 && options.decay < 1, "{}: decay {} is not in [0, 1)", op, options.decay);
  QUIRE_CHECK((options.reseed <= 0 && !options.reseed_all) || (seeds.defined() && present.defined()),
              "{}: codewords are to be seeded anew, but there are no seeds", op);
}

void check_codewords(const Tensor& codebook, const Tensor& m, const Tensor& n) {
  const char* const op = "codewords";
  require_rank(op, "m", m, 3);
  require(op, "m", m, m.shape(), wide_type(m.dtype()));
  require(op, "n", n, {m.dim(0), m.dim(1)}, m.dtype());
  require(op, "codebook", codebook, m.shape(), m.dtype());
}

CodedTokenSizes::CodedTokenSizes(const ops::CodedTokens& in) {
  const char* const op = "sort_by_code";
  require_rank(op, "codes", in.codes, 3);
  require_rank(op, "origin", in.origin, 2);
  rows = in.codes.dim(0);
  tokens = in.codes.dim(1);
  kv_heads = in.codes.dim(2);
  caches = in.origin.dim(1);
  slots = in.window_codes.defined() ? in.window_codes.dim(1) : 0;
  QUIRE_CHECK(caches > 0, "{}: no cache", op);
  require(op, "codes", in.codes, in.codes.shape(), DType::i32);
  QUIRE_CHECK(slots == 0 || in.window_head.defined(), "{}: a window needs its head", op);
  if (slots > 0) {
    require(op, "window_codes", in.window_codes, {rows, slots, kv_heads}, DType::i32);
    require(op, "window_head", in.window_head, {rows}, DType::i32);
  }
  require(op, "origin", in.origin, {rows, caches}, DType::i32);
  require(op, "limit", in.limit, {rows, caches}, DType::i32);
}

ops::TokensByCode empty_tokens_by_code(const ops::CodedTokens& in, int64_t codes) {
  const CodedTokenSizes s(in);
  return {Tensor::empty({s.rows * (s.slots + s.tokens) * s.kv_heads}, DType::i32, in.codes.device()),
          Tensor::empty({s.rows, s.caches, s.kv_heads, codes, 2}, DType::i32, in.codes.device())};
}

void check_tokens_by_code(const CodedTokenSizes& s, int64_t codes, const ops::TokensByCode& by_code) {
  const char* const op = "sort_by_code";
  require(op, "positions", by_code.positions, {s.rows * (s.slots + s.tokens) * s.kv_heads}, DType::i32);
  require(op, "ranges", by_code.ranges, {s.rows, s.caches, s.kv_heads, codes, 2}, DType::i32);
}

CodeCacheSizes::CodeCacheSizes(const ops::CodeCacheInputs& in) : CodedTokenSizes(in.tokens) {
  const char* const op = "code_caches";
  require_rank(op, "v", in.v, 4);
  require_rank(op, "mean", in.mean, 4);
  value_size = in.v.dim(3);
  codes = in.mean.dim(2);
  const DType type = in.v.dtype();
  const DType wide = wide_type(type);
  require(op, "v", in.v, {rows, tokens, kv_heads, value_size}, type);
  QUIRE_CHECK((in.window_v.defined() ? in.window_v.dim(1) : 0) == slots,
              "{}: a window needs values, codes and its head", op);
  if (slots > 0) require(op, "window_v", in.window_v, {rows, slots, kv_heads, value_size}, type);
  require(op, "mean", in.mean, {rows, kv_heads, codes, value_size}, wide);
  require(op, "count", in.count, {rows, kv_heads, codes}, wide);
}

namespace {

void require_means(const CodeCacheSizes& s, const Tensor& means, const Tensor& counts, const ops::CodeCacheInputs& in) {
  require("code_caches", "means", means, {s.rows, s.caches - 1, s.kv_heads, s.codes, s.value_size}, in.v.dtype());
  require("code_caches", "counts", counts, {s.rows, s.caches, s.kv_heads, s.codes}, wide_type(in.v.dtype()));
}

}  // namespace

void check_code_caches(const CodeCacheSizes& s, const Tensor& means, const Tensor& last, const Tensor& counts,
                       const ops::CodeCacheInputs& in, const ops::TokensByCode& by_code) {
  require_means(s, means, counts, in);
  require("code_caches", "last", last, in.mean.shape(), in.mean.dtype());
  check_tokens_by_code(s, s.codes, by_code);
}

void check_code_caches_backward(const CodeCacheSizes& s, const Tensor& dv, const Tensor& dmeans, const Tensor& counts,
                                const ops::CodeCacheInputs& in, const ops::TokensByCode& by_code) {
  require_means(s, dmeans, counts, in);
  require("code_caches_backward", "dv", dv, in.v.shape(), in.v.dtype());
  check_tokens_by_code(s, s.codes, by_code);
}

CodeAttentionSizes::CodeAttentionSizes(const ops::CodeAttentionInputs& in) {
  const char* const op = "code_attention";
  require_rank(op, "q", in.q, 4);
  require_rank(op, "codebook", in.codebook, 3);
  require_rank(op, "means", in.means, 5);
  rows = in.q.dim(0);
  queries = in.q.dim(1);
  heads = in.q.dim(2);
  size = in.q.dim(3);
  kv_heads = in.codebook.dim(0);
  codes = in.codebook.dim(1);
  caches = in.means.dim(1) + 1;
  value_size = in.means.dim(4);
  block = in.block;
  const DType type = in.q.dtype();
  const DType wide = wide_type(type);
  QUIRE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "{}: {} query heads are no multiple of {} key heads", op, heads,
              kv_heads);
  QUIRE_CHECK(block > 0 && caches > (queries + block - 1) / block, "{}: {} caches for {} queries in blocks of {}", op,
              caches, queries, block);
  require(op, "q", in.q, in.q.shape(), type);
  require(op, "u", in.u, {heads, size}, wide);
  require(op, "codebook", in.codebook, {kv_heads, codes, size}, wide);
  require(op, "means", in.means, {rows, caches - 1, kv_heads, codes, value_size}, type);
  require(op, "counts", in.counts, {rows, caches, kv_heads, codes}, wide);
}

void check_code_attention(const CodeAttentionSizes& s, const Tensor& out, const Tensor& lse,
                          const ops::CodeAttentionInputs& in) {
  require("code_attention", "out", out, {s.rows, s.queries, s.heads, s.value_size}, in.q.dtype());
  require("code_attention", "lse", lse, {s.rows, s.heads, s.queries}, wide_type(in.q.dtype()));
}

void check_code_attention_backward(const CodeAttentionSizes& s, const Tensor& dq, const Tensor& du,
                                   const Tensor& dmeans, const Tensor& dout, const Tensor& delta, const Tensor& lse,
                                   const ops::CodeAttentionInputs& in) {
  const char* const op = "code_attention_backward";
  require(op, "dout", dout, {s.rows, s.queries, s.heads, s.value_size}, in.q.dtype());
  for (const Tensor* sums : {&lse, &delta}) {
    require(op, "lse or delta", *sums, {s.rows, s.heads, s.queries}, wide_type(in.q.dtype()));
  }
  require(op, "dq", dq, in.q.shape(), in.q.dtype());
  QUIRE_CHECK(!du.defined() || in.u.defined(), "{}: a gradient of u, which is not given", op);
  require(op, "du", du, {s.heads, s.size}, wide_type(in.q.dtype()));
  require(op, "dmeans", dmeans, in.means.shape(), in.means.dtype());
}

}  // namespace quire
