#include "kernels/planned_scratch.h"

#include <algorithm>

#include "core/check.h"
#include "kernels/attention_choices.h"
#include "kernels/cuda_scratch.h"
#include "kernels/cudnn_scratch.h"

namespace quire {

namespace {

DeviceKind g_planned = DeviceKind::meta;  // meta: no plan is being made

// The tables of position terms, with the layout of kernels/cpu/attention_blocks.h, and the parts of their gradients
// (attention_backward.cpp). A few columns at their margins differ between processors.
struct CpuAttentionScratch {
  static constexpr int64_t kMargin = 160;
  static constexpr int64_t kVectors = 64;
  static constexpr int64_t kRowGroups = 4;
  Tensor bias, r;
  Tensor dbias, dr;

  CpuAttentionScratch(const AttentionSizes& s, const ops::AttentionInputs& in) {
    const DType type = in.q.dtype();
    if (in.bias.defined()) bias = Tensor::empty({s.heads, s.entries + kMargin}, type, kMeta);
    if (in.r.defined()) r = Tensor::empty({s.heads, s.size, s.entries + kVectors}, type, kMeta);
  }
  void add_gradients(const AttentionSizes& s, const ops::AttentionGradients& g, const ops::AttentionInputs& in) {
    const int64_t groups = std::min(s.rows, kRowGroups);
    const DType type = in.q.dtype();
    if (in.r.defined()) dr = Tensor::empty({groups, s.entries, s.heads, s.size}, type, kMeta);
    if (g.dbias.defined()) dbias = Tensor::empty({groups, s.heads, s.entries + kMargin}, type, kMeta);
  }
};

bool goes_to_cudnn(const ops::AttentionInputs& in) {
  return g_planned == DeviceKind::cuda && in.kernels == ops::AttentionKernels::cudnn;
}

// Without a GPU the need of the plans is unknown, so the plan reserves their limit.
Tensor cudnn_workspace(int64_t bytes) {
  return Tensor::empty({std::min(bytes, kCudnnWorkspaceBytes)}, DType::u8, kMeta);
}

void take_attention(const Tensor&, const Tensor&, const ops::AttentionInputs& in) {
  const AttentionSizes sizes(in);
  if (g_planned == DeviceKind::cpu) CpuAttentionScratch(sizes, in);
  if (!goes_to_cudnn(in)) return;
  const CudnnLines lines(sizes, in);
  const CudnnSequenceTables tables(sizes, in);
  cudnn_workspace(kCudnnForwardWorkspaceBytes);
}

void take_cudnn_attention_backward(const AttentionSizes& sizes, const ops::AttentionGradients& gradients,
                                   const Tensor& dout, const ops::AttentionInputs& in) {
  const CudnnLines lines(sizes, in);
  const CudnnSequenceTables tables(sizes, in);
  const CudnnGradients written(lines, gradients, dout, in);
  cudnn_workspace(cudnn_backward_workspace(problem_of(in)));
}

void take_attention_backward(const ops::AttentionGradients& gradients, const Tensor& dout, const Tensor&, const Tensor&,
                             const ops::AttentionInputs& in) {
  const AttentionSizes sizes(in);
  if (goes_to_cudnn(in)) return take_cudnn_attention_backward(sizes, gradients, dout, in);
  const DType wide = wide_type(in.q.dtype());
  if (g_planned == DeviceKind::cpu) {
    CpuAttentionScratch scratch(sizes, in);
    scratch.add_gradients(sizes, gradients, in);
  } else if (g_planned == DeviceKind::cuda) {
    const AttentionBackwardScratch scratch(sizes, wide, kMeta);
    { const KeyGradientScratch given_back_at_once(sizes, gradients, wide, kMeta); }
    if (DistanceGradientScratch::needed(gradients)) DistanceGradientScratch(sizes, gradients, wide, kMeta);
  }
}

void take_block_attention(const Tensor&, const Tensor&, const ops::BlockAttentionInputs& in) {
  if (g_planned == DeviceKind::cuda) BlockScratch(BlockSizes(in), kMeta);
}

void take_block_attention_backward(const ops::BlockAttentionGradients&, const Tensor&, const Tensor&, const Tensor&,
                                   const Tensor&, const ops::BlockAttentionInputs& in) {
  if (g_planned != DeviceKind::cuda) return;
  const BlockSizes sizes(in);
  const BlockScratch scratch(sizes, kMeta);
  BlockBackwardScratch(sizes, in, kMeta);
}

void take_listed_attention(const Tensor&, const Tensor&, const Tensor&, const ops::ListedAttentionInputs& in) {
  if (g_planned != DeviceKind::cuda) return;
  const ListedSizes sizes(in);
  if (ListedScratch::needed(sizes, in)) ListedScratch(sizes, in, false);
}

void take_listed_attention_backward(const ops::ListedAttentionGradients& gradients, const Tensor&, const Tensor&,
                                    const Tensor&, const Tensor&, const ops::ListedAttentionInputs& in) {
  if (g_planned != DeviceKind::cuda) return;
  const ListedSizes sizes(in);
  const ListBackwardScratch scratch(sizes, gradients, in);
  if (ListedScratch::needed(sizes, in)) ListedScratch(sizes, in, true);
}

void take_code_attention(const Tensor&, const Tensor&, const ops::CodeAttentionInputs& in) {
  if (g_planned != DeviceKind::cuda) return;
  const CodeAttentionSizes sizes(in);
  if (CodeScratch::needed(sizes, in.q.dtype())) CodeScratch(sizes, kMeta);
}

void take_code_attention_backward(const Tensor&, const Tensor& du, const Tensor&, const Tensor&, const Tensor&,
                                  const Tensor&, const ops::CodeAttentionInputs& in) {
  if (g_planned != DeviceKind::cuda) return;
  const CodeAttentionSizes sizes(in);
  const CodeBackwardScratch scratch(sizes, du.defined(), wide_type(in.q.dtype()), kMeta);
  if (CodeScratch::needed(sizes, in.q.dtype())) CodeScratch(sizes, kMeta);
}

void take_delta_rule_backward(const ops::DeltaGradients&, const Tensor&, const Tensor&, const Tensor&,
                              const ops::DeltaInputs& in) {
  if (g_planned == DeviceKind::cuda) DeltaBackwardScratch(DeltaSizes(in), in.state.dtype(), kMeta);
}

void take_knn_search(const Tensor& index, const Tensor&, const Tensor& q, const ops::KnnMemory& memory,
                     ops::KnnSearch search) {
  if (g_planned != DeviceKind::cuda || index.numel() == 0) return;
  SearchScratch(KnnSizes(q, index, memory), index, q, memory, search == ops::KnnSearch::bucketed, kMeta);
}

}  // namespace

DeviceKind planned_device() {
  return g_planned;
}

PlannedScratch::PlannedScratch(DeviceKind kind) {
  QUIRE_CHECK(g_planned == DeviceKind::meta, "plan: another one is being made");
  g_planned = kind;
  ops::attention.bind(DeviceKind::meta, take_attention);
  ops::attention_backward.bind(DeviceKind::meta, take_attention_backward);
  ops::block_attention.bind(DeviceKind::meta, take_block_attention);
  ops::block_attention_backward.bind(DeviceKind::meta, take_block_attention_backward);
  ops::listed_attention.bind(DeviceKind::meta, take_listed_attention);
  ops::listed_attention_backward.bind(DeviceKind::meta, take_listed_attention_backward);
  ops::code_attention.bind(DeviceKind::meta, take_code_attention);
  ops::code_attention_backward.bind(DeviceKind::meta, take_code_attention_backward);
  ops::delta_rule_backward.bind(DeviceKind::meta, take_delta_rule_backward);
  ops::knn_search.bind(DeviceKind::meta, take_knn_search);
}

PlannedScratch::~PlannedScratch() {
  g_planned = DeviceKind::meta;
}

}  // namespace quire
