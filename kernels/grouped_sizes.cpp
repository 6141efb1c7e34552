#include "kernels/grouped_sizes.h"

#include <limits>

#include "core/check.h"

namespace quire {

namespace {

// Checks a tensor; undefined ones pass.
void require(const char* name, const Tensor& tensor, const Shape& shape, DType dtype) {
  if (!tensor.defined()) return;
  QUIRE_CHECK(tensor.shape() == shape && tensor.dtype() == dtype && tensor.is_contiguous(),
              "grouped_cross_attention: {} is {} {}; it must be {} {} and contiguous", name, tensor.shape().to_string(),
              name_of(tensor.dtype()), shape.to_string(), name_of(dtype));
}

// Returns the size of an axis of an operand that must have `rank` axes.
int64_t axis_of(const char* name, const Tensor& tensor, int rank, int axis) {
  QUIRE_CHECK(tensor.defined() && tensor.rank() == rank, "grouped_cross_attention: {} has {} axes; it must have {}",
              name, tensor.defined() ? tensor.rank() : 0, rank);
  return tensor.dim(axis);
}

}  // namespace

GroupedSizes::GroupedSizes(const ops::GroupedCrossAttentionInputs& in)
    : rows(axis_of("q", in.q, 4, 0)),
      queries(in.q.dim(1)),
      heads(in.q.dim(2)),
      kv_heads(axis_of("keys", in.keys, 4, 2)),
      size(in.q.dim(3)),
      value_size(axis_of("values", in.values, 4, 3)),
      chunks(in.keys.dim(0)),
      length(in.keys.dim(1)),
      lists(axis_of("chosen", in.chosen, 3, 1)),
      chosen(in.chosen.dim(2)) {
  QUIRE_CHECK(kv_heads > 0 && heads % kv_heads == 0,
              "grouped_cross_attention: {} query heads are no multiple of {} key heads", heads, kv_heads);
  constexpr int64_t kMaxNumber = std::numeric_limits<int32_t>::max();
  QUIRE_CHECK(length > 0, "grouped_cross_attention: chunks without keys");
  QUIRE_CHECK(chunks < kMaxNumber && queries < kMaxNumber && in.chosen.numel() < kMaxNumber,
              "grouped_cross_attention: {} chunks, {} queries in a row and {} entries of lists; numbers have 31 bits",
              chunks, queries, in.chosen.numel());
  const DType stored = in.keys.dtype();
  QUIRE_CHECK(stored == in.q.dtype() || stored == DType::bf16,
              "grouped_cross_attention: keys in {} beside queries in {}", name_of(stored), name_of(in.q.dtype()));
  axis_of("weight", in.weight, 3, 0);
  axis_of("list", in.list, 2, 0);
  require("q", in.q, in.q.shape(), in.q.dtype());
  require("keys", in.keys, {chunks, length, kv_heads, size}, stored);
  require("values", in.values, {chunks, length, kv_heads, value_size}, stored);
  require("chosen", in.chosen, {rows, lists, chosen}, DType::i32);
  require("weight", in.weight, in.chosen.shape(), wide_type(in.q.dtype()));
  require("list", in.list, {rows, queries}, DType::i32);
}

void check_grouped_cross_attention(const GroupedSizes& s, const Tensor& out, const Tensor& lse,
                                   const ops::GroupedCrossAttentionInputs& in) {
  require("out", out, {s.rows, s.queries, s.heads, s.value_size}, in.q.dtype());
  require("lse", lse, {s.rows, s.heads, s.queries, s.chosen}, wide_type(in.q.dtype()));
}

void check_grouped_cross_attention_backward(const GroupedSizes& s, const ops::GroupedCrossAttentionGradients& g,
                                            const Tensor& dout, const Tensor& lse,
                                            const ops::GroupedCrossAttentionInputs& in) {
  const DType type = in.q.dtype();
  require("dout", dout, {s.rows, s.queries, s.heads, s.value_size}, type);
  require("lse", lse, {s.rows, s.heads, s.queries, s.chosen}, wide_type(type));
  require("dq", g.dq, in.q.shape(), type);
  require("dkeys", g.dkeys, in.keys.shape(), type);
  require("dvalues", g.dvalues, in.values.shape(), type);
  require("dweight", g.dweight, in.weight.shape(), in.weight.dtype());
  QUIRE_CHECK(
      in.keys.dtype() == type || (!g.dkeys.defined() && !g.dvalues.defined()),
      "grouped_cross_attention: keys and values in {} beside queries in {} are constant, but a gradient of them "
      "is asked for",
      name_of(in.keys.dtype()), name_of(type));
}

}  // namespace quire
