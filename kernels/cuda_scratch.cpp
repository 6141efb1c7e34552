#include "kernels/cuda_scratch.h"

#include <algorithm>

namespace quire {

namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

AttentionBackwardScratch::AttentionBackwardScratch(const AttentionSizes& s, DType wide, Device device)
    : delta(Tensor::empty({s.rows, s.heads, s.queries}, wide, device)),
      ranges(Tensor::empty({s.rows * ceil_div(s.queries, kGpuTile), 3}, DType::i32, device)) {}

KeyGradientScratch::KeyGradientScratch(const AttentionSizes& s, const ops::AttentionGradients& gradients, DType wide,
                                       Device device) {
  if (!gradients.du.defined()) return;
  const int64_t keys = s.slots + s.queries;
  sums = Tensor::empty({s.rows, s.heads, keys}, wide, device);
  lines = Tensor::empty({ceil_div(s.rows * keys, kLinesOfPart), s.heads, s.size}, wide, device);
}

DistanceGradientScratch::DistanceGradientScratch(const AttentionSizes& s, const ops::AttentionGradients& gradients,
                                                 DType wide, Device device) {
  // Blocks enough to fill a device, whatever device it is.
  constexpr int64_t kBlocks = 1024;
  const int64_t tiles = s.heads * ceil_div(s.entries, kGpuTile);
  const int64_t units = s.rows * ceil_div(s.queries, kGpuTile);
  groups = std::max<int64_t>(1, std::min(units, ceil_div(kBlocks, std::max<int64_t>(1, tiles))));
  if (gradients.dr.defined()) r_parts = Tensor::empty({groups, s.entries, s.heads, s.size}, wide, device);
  sum_parts = Tensor::empty({groups, s.heads, s.entries}, wide, device);
  if (!gradients.dbias.defined() && gradients.dv_bias.defined()) {
    sums = Tensor::empty({s.heads, s.entries}, wide, device);
  }
  if (gradients.dv_bias.defined()) {
    lines = Tensor::empty({ceil_div(s.entries, kLinesOfPart), s.heads, s.size}, wide, device);
  }
}

// Two neighbouring tiles of whole blocks have more than 64 keys together, and a long block brings one tile that is not
// full and parts such neighbours.
BlockScratch::BlockScratch(const BlockSizes& s, Device device)
    : tiles(Tensor::empty({s.rows, 3 * s.keys / kGpuTile + 2, kKeyTileNumbers}, DType::i32, device)) {}

BlockBackwardScratch::BlockBackwardScratch(const BlockSizes& s, const ops::BlockAttentionInputs& in, Device device) {
  const DType wide = wide_type(in.q.dtype());
  delta = Tensor::empty({s.rows, s.heads, s.queries}, wide, device);
  const int64_t most = s.keys / (kGpuTile + 1);
  if (!in.landmark.defined() || most == 0) return;
  long_blocks = Tensor::empty({s.rows, s.heads, s.queries, most, kLongBlockNumbers}, wide, device);
}

// The tiles of a list are full but for one.
GroupedScratch::GroupedScratch(const GroupedSizes& s, Device device)
    : ranges(Tensor::empty({s.rows, s.lists, 2}, DType::i32, device)),
      tiles(Tensor::empty({s.rows, std::min(s.queries, s.queries / kGpuTile + s.lists), kListTileNumbers}, DType::i32,
                          device)) {}

GroupedBackwardScratch::GroupedBackwardScratch(const GroupedSizes& s, const ops::GroupedCrossAttentionGradients& g,
                                               const ops::GroupedCrossAttentionInputs& in)
    : delta(Tensor::empty({s.rows, s.heads, s.queries, s.chosen}, wide_type(in.q.dtype()), in.q.device())) {
  if (!g.dkeys.defined() && !g.dvalues.defined()) return;
  entries = Tensor::empty({4, in.chosen.numel()}, DType::i32, in.q.device());
}

CodeBackwardScratch::CodeBackwardScratch(const CodeAttentionSizes& s, bool with_du, DType wide, Device device)
    : delta(Tensor::empty({s.rows, s.heads, s.queries}, wide, device)) {
  if (with_du) terms = Tensor::empty({s.rows, s.queries, s.heads, s.size}, wide, device);
}

SearchScratch::SearchScratch(const KnnSizes& s, const Tensor& index, DType score, bool bucketed, Device device) {
  constexpr int64_t kBlocks = 512;
  constexpr int64_t kKeysOfPart = 1024;
  // The best of a block's queries are kept in shared memory when they take no more bytes: more would leave no room on
  // older chips.
  constexpr int64_t kMostBest = int64_t{40} << 10;
  tiles = ceil_div(s.queries * s.group(), kGpuTile);
  const int64_t heads = s.rows * s.kv_heads * tiles;
  const int64_t most_parts = ceil_div(s.slots, kKeysOfPart);
  parts = bucketed || most_parts <= 1 ? 1 : std::min(ceil_div(kBlocks, heads), most_parts);
  blocks = heads * parts;
  shared = s.wanted * static_cast<int64_t>(size_of(score) + sizeof(int32_t)) <= kMostBest / kGpuTile;
  if (!shared) {
    best_score = Tensor::empty({blocks, kGpuTile, s.wanted}, score, device);
    best_entry = Tensor::empty({blocks, kGpuTile, s.wanted}, DType::i32, device);
  }
  if (parts > 1) {
    part_score = Tensor::empty({parts, index.numel()}, score, device);
    part_index = Tensor::empty({parts, index.numel()}, DType::i32, device);
  }
}

}  // namespace quire
