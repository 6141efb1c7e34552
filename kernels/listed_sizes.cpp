#include "kernels/listed_sizes.h"

#include <limits>

#include "core/check.h"
#include "kernels/knn.h"

namespace quire {

namespace {

// Checks a tensor; undefined ones pass.
void require(const char* name, const Tensor& tensor, const Shape& shape, DType dtype) {
  if (!tensor.defined()) return;
  QUIRE_CHECK(tensor.shape() == shape && tensor.dtype() == dtype && tensor.is_contiguous(),
              "listed_attention: {} is {} {}; it must be {} {} and contiguous", name, tensor.shape().to_string(),
              name_of(tensor.dtype()), shape.to_string(), name_of(dtype));
}

// Returns the size of an axis of an operand that must have `rank` axes.
int64_t axis_of(const char* name, const Tensor& tensor, int rank, int axis) {
  QUIRE_CHECK(tensor.defined() && tensor.rank() == rank, "listed_attention: {} has {} axes; it must have {}", name,
              tensor.defined() ? tensor.rank() : 0, rank);
  return tensor.dim(axis);
}

Shape lse_shape(const ListedSizes& s, bool by_block) {
  return by_block ? Shape{s.rows, s.heads, s.queries, s.chosen} : Shape{s.rows, s.heads, s.queries};
}

}  // namespace

ListedSizes::ListedSizes(const ops::ListedAttentionInputs& in)
    : rows(axis_of("q", in.q, 4, 0)),
      queries(in.q.dim(1)),
      heads(in.q.dim(2)),
      kv_heads(axis_of("keys", in.keys, 4, 2)),
      size(in.q.dim(3)),
      value_size(axis_of("values", in.values, 4, 3)),
      blocks(in.keys.dim(0)),
      stored_length(in.keys.dim(1)),
      length(in.length == 0 ? stored_length : in.length),
      lists(axis_of("blocks", in.blocks, 4, 1)),
      list_heads(in.blocks.dim(2)),
      chosen(in.blocks.dim(3)),
      own_keys(in.own_keys.defined() ? axis_of("own_keys", in.own_keys, 4, 1) : 0),
      own_blocks(in.own_keys.defined() ? axis_of("own_blocks", in.own_blocks, 2, 0) : 0),
      width(in.weight.defined() && in.weight.rank() == 4 ? in.weight.dim(3) : chosen) {
  QUIRE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "listed_attention: {} query heads are no multiple of {} key heads",
              heads, kv_heads);
  QUIRE_CHECK(length > (in.landmarks ? 1 : 0), "listed_attention: blocks of {} keys{}", length,
              in.landmarks ? " have no key beside the landmark" : "");
  QUIRE_CHECK(length <= stored_length, "listed_attention: {} of {} keys of a block", length, stored_length);
  QUIRE_CHECK(list_heads == 1 || list_heads == kv_heads || list_heads == heads,
              "listed_attention: lists of {} heads for {} and {} key heads", list_heads, heads, kv_heads);
  constexpr int64_t kMaxNumber = std::numeric_limits<int32_t>::max();
  QUIRE_CHECK(blocks + own_blocks < kMaxNumber && rows * queries * heads < kMaxNumber && in.blocks.numel() < kMaxNumber,
              "listed_attention: {} blocks, {} queries in {} rows and {} entries of lists; numbers have 31 bits",
              blocks + own_blocks, queries, rows, in.blocks.numel());
  const DType type = in.q.dtype(), stored = in.keys.dtype();
  const bool scaled = ops::has_scale(stored);
  QUIRE_CHECK(stored == type || stored == DType::f32 || stored == DType::bf16 || scaled,
              "listed_attention: keys in {} beside queries in {}", name_of(stored), name_of(type));
  QUIRE_CHECK(in.key_scale.defined() == scaled && in.value_scale.defined() == scaled,
              "listed_attention: keys and values in {} {} scales", name_of(stored), scaled ? "need" : "have no");
  QUIRE_CHECK(in.list.defined() || lists == queries, "listed_attention: {} lists for {} queries", lists, queries);
  const bool of_lists = in.weight.defined() && in.weight.rank() == 3;
  QUIRE_CHECK(!in.weight.defined() || !in.landmarks, "listed_attention: weights beside landmarks");
  QUIRE_CHECK(!of_lists || list_heads == 1, "listed_attention: weights of lists for all heads, but lists of {}",
              list_heads);
  QUIRE_CHECK(width >= chosen, "listed_attention: {} weights for lists of {}", width, chosen);
  QUIRE_CHECK(in.weight.defined() || !in.softmax_one, "listed_attention: softmax_one without weights");
  QUIRE_CHECK(in.own_keys.defined() == in.own_values.defined(), "listed_attention: own keys or values alone");
  require("q", in.q, in.q.shape(), type);
  require("keys", in.keys, {blocks, stored_length, kv_heads, size}, stored);
  require("values", in.values, {blocks, stored_length, kv_heads, value_size}, stored);
  require("key_scale", in.key_scale, {blocks, stored_length, kv_heads}, DType::bf16);
  require("value_scale", in.value_scale, {blocks, stored_length, kv_heads}, DType::bf16);
  require("own_keys", in.own_keys, {rows, own_keys, kv_heads, size}, type);
  require("own_values", in.own_values, {rows, own_keys, kv_heads, value_size}, type);
  require("own_blocks", in.own_blocks, {own_blocks, 2}, DType::i32);
  require("blocks", in.blocks, {rows, lists, list_heads, chosen}, DType::i32);
  require("list", in.list, {rows, queries}, DType::i32);
  require("weight", in.weight, of_lists ? Shape{rows, lists, chosen} : Shape{rows, heads, queries, width},
          wide_type(type));
  require("rotation", in.rotation, in.blocks.shape(), DType::i32);
  if (!in.table.defined()) return;
  QUIRE_CHECK(in.rotation.defined(), "listed_attention: a table without rotations");
  require("table", in.table, {in.table.dim(0), 2, in.table.dim(2)}, wide_type(type));
  QUIRE_CHECK(2 * in.table.dim(2) <= size, "listed_attention: {} features are rotated but a head has {}",
              2 * in.table.dim(2), size);
}

void check_listed_attention(const ListedSizes& s, const Tensor& out, const Tensor& lse, const Tensor& mass,
                            const ops::ListedAttentionInputs& in) {
  const DType type = in.q.dtype();
  require("out", out, {s.rows, s.queries, s.heads, s.value_size}, type);
  require("lse", lse, lse_shape(s, in.weight.defined()), wide_type(type));
  require("mass", mass, lse_shape(s, true), wide_type(type));
  QUIRE_CHECK(!mass.defined() || !in.weight.defined(), "listed_attention: with weights lse has the masses");
}

void check_listed_attention_backward(const ListedSizes& s, const ops::ListedAttentionGradients& g, const Tensor& dout,
                                     const Tensor& dlse, const Tensor& out, const Tensor& lse,
                                     const ops::ListedAttentionInputs& in) {
  check_listed_attention(s, out, lse, {}, in);
  const DType type = in.q.dtype();
  require("dout", dout, {s.rows, s.queries, s.heads, s.value_size}, type);
  require("dlse", dlse, lse_shape(s, false), wide_type(type));
  require("dq", g.dq, in.q.shape(), type);
  require("dkeys", g.dkeys, in.keys.shape(), type);
  require("dvalues", g.dvalues, in.values.shape(), type);
  require("dweight", g.dweight, in.weight.defined() ? in.weight.shape() : Shape{}, wide_type(type));
  require("down_keys", g.down_keys, in.own_keys.defined() ? in.own_keys.shape() : Shape{}, type);
  require("down_values", g.down_values, in.own_values.defined() ? in.own_values.shape() : Shape{}, type);
  QUIRE_CHECK(!in.landmarks ||
                  (!g.dkeys.defined() && !g.dvalues.defined() && !g.down_keys.defined() && !g.down_values.defined()),
              "listed_attention: with landmarks keys and values are constant, but a gradient of them is asked for");
  QUIRE_CHECK(in.keys.dtype() == type || (!g.dkeys.defined() && !g.dvalues.defined()),
              "listed_attention: keys and values in {} beside queries in {} are constant, but a gradient of them is "
              "asked for",
              name_of(in.keys.dtype()), name_of(type));
}

void refuse_scaled_blocks(const ops::ListedAttentionInputs& in) {
  QUIRE_CHECK(!in.key_scale.defined(), "listed_attention: on a GPU keys and values in {} must be dequantized before",
              name_of(in.keys.dtype()));
}

}  // namespace quire
