#include "kernels/cudnn_scratch.h"

namespace quire {

namespace {

int64_t aligned(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Returns a tensor for a result that a pass must write even if the caller does not need it.
Tensor given_or_new(const Tensor& given, const Tensor& like) {
  return given.defined() ? given : Tensor::empty_like(like);
}

}  // namespace

CudnnSequenceTables::CudnnSequenceTables(const AttentionSizes& s, const ops::AttentionInputs& in) {
  if (!in.band.several_documents) return;
  calls = s.rows == 0 ? 0 : (in.sequences.dim(0) + s.rows - 1) / s.rows;
  lengths = Tensor::empty({calls, 2, aligned(s.rows, kAlignedLengths)}, DType::i32, in.q.device());
  offsets = Tensor::empty({calls, kOffsets, aligned(s.rows + 1, kAlignedOffsets)}, DType::i64, in.q.device());
}

CudnnLines::CudnnLines(const AttentionSizes& s, const ops::AttentionInputs& in) {
  const int64_t carried = in.band.carried;
  if (carried == 0) return;
  const Device device = in.q.device();
  query_lengths = Tensor::empty({s.rows}, DType::i32, device);
  key_lengths = Tensor::empty({s.rows}, DType::i32, device);
  k = Tensor::empty({s.rows, carried + s.queries, s.kv_heads, s.size}, in.k.dtype(), device);
  v = Tensor::empty({s.rows, carried + s.queries, s.kv_heads, s.value_size}, in.v.dtype(), device);
}

CudnnGradients::CudnnGradients(const CudnnLines& lines, const ops::AttentionGradients& g, const Tensor& given_dout,
                               const ops::AttentionInputs& in) {
  if (in.band.padding && !in.band.several_documents) dout = Tensor::empty_like(given_dout);
  dq = given_or_new(g.dq, in.q);
  dk = lines.k.defined() ? Tensor::empty_like(lines.k) : given_or_new(g.dk, in.k);
  dv = lines.v.defined() ? Tensor::empty_like(lines.v) : given_or_new(g.dv, in.v);
}

}  // namespace quire
