#include "kernels/block_sizes.h"

#include <limits>

#include "core/check.h"

namespace quire {

namespace {

// Checks a tensor; undefined ones pass.
void require_blocks(const char* name, const Tensor& tensor, const Shape& shape, DType dtype) {
  if (!tensor.defined()) return;
  QUIRE_CHECK(tensor.shape() == shape && tensor.dtype() == dtype && tensor.is_contiguous(),
              "blocks: {} is {} {}; it must be {} {} and contiguous", name, tensor.shape().to_string(),
              name_of(tensor.dtype()), shape.to_string(), name_of(dtype));
}

}  // namespace

BlockSizes::BlockSizes(const ops::BlockAttentionInputs& in)
    : rows(in.q.dim(0)),
      queries(in.q.dim(1)),
      keys(in.k.dim(1)),
      heads(in.q.dim(2)),
      kv_heads(in.k.dim(2)),
      size(in.q.dim(3)),
      value_size(in.v.dim(3)) {
  const DType type = in.q.dtype();
  QUIRE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "block_attention: {} query heads are no multiple of {} key heads",
              heads, kv_heads);
  QUIRE_CHECK(keys >= queries && keys <= std::numeric_limits<int32_t>::max() / 2,
              "block_attention: {} keys for {} queries", keys, queries);
  require_blocks("q", in.q, {rows, queries, heads, size}, type);
  require_blocks("k", in.k, {rows, keys, kv_heads, size}, type);
  require_blocks("v", in.v, {rows, keys, kv_heads, value_size}, type);
  require_blocks("block", in.block, {rows, keys}, DType::i32);
  require_blocks("first", in.first, {rows, queries}, DType::i32);
  require_blocks("landmark", in.landmark, {rows, keys}, DType::u8);
  QUIRE_CHECK(in.dropout == 0 || in.landmark.defined(), "block_attention: dropout is that of landmarks");
  QUIRE_CHECK(in.grouped || (in.dropout == 0 && !in.empty_blocks_count),
              "block_attention: landmarks that are no gates have neither dropout nor a share");
}

void check_block_attention(const BlockSizes& s, const Tensor& out, const Tensor& lse,
                           const ops::BlockAttentionInputs& in) {
  require_blocks("out", out, {s.rows, s.queries, s.heads, s.value_size}, in.q.dtype());
  require_blocks("lse", lse, {s.rows, s.heads, s.queries}, wide_type(in.q.dtype()));
}

void check_block_attention_backward(const BlockSizes& s, const ops::BlockAttentionGradients& g, const Tensor& dout,
                                    const Tensor& dlse, const Tensor& out, const Tensor& lse,
                                    const ops::BlockAttentionInputs& in) {
  check_block_attention(s, out, lse, in);
  const DType type = in.q.dtype();
  require_blocks("dout", dout, out.shape(), type);
  require_blocks("dlse", dlse, lse.shape(), lse.dtype());
  require_blocks("dq", g.dq, in.q.shape(), type);
  require_blocks("dk", g.dk, in.k.shape(), type);
  require_blocks("dv", g.dv, in.v.shape(), type);
}

void check_place_blocks(const Tensor& slot, const Tensor& rotation, const Tensor& own, const ops::BlockPlacing& in) {
  const Shape& index = in.index.shape();
  const int64_t top_k = index[-1];
  QUIRE_CHECK(index.rank() == (in.age.defined() ? 3 : 4) && top_k <= ops::kMaxChosenBlocks, "place_blocks: index is {}",
              index.to_string());
  Shape shape = index;
  if (in.age.defined()) ++shape[1];
  require_blocks("index", in.index, index, DType::i32);
  for (const Tensor* tensor : {&slot, &rotation, &own}) require_blocks("list", *tensor, shape, DType::i32);
  require_blocks("age", in.age, {index[0], top_k}, DType::i32);
  for (const Tensor* tensor : {&in.head, &in.length, &in.first, &in.places, &in.count}) {
    require_blocks("row", *tensor, {index[0]}, DType::i32);
  }
  QUIRE_CHECK(in.count.defined() == in.age.defined(), "place_blocks: ages and counts come together");
}

}  // namespace quire
