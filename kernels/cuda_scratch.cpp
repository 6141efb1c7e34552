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
  const int64_t max_long_blocks = s.keys / (kGpuTile + 1);
  if (!in.landmark.defined() || max_long_blocks == 0) return;
  long_blocks = Tensor::empty({s.rows, s.heads, s.queries, max_long_blocks, kLongBlockNumbers}, wide, device);
}

ListedScratch::ListedScratch(const ListedSizes& s, const ops::ListedAttentionInputs& in, bool backward) {
  const Device device = in.q.device();
  const int64_t width = backward ? s.size : s.value_size;
  const int64_t of_line = s.chosen * width * static_cast<int64_t>(sizeof(float));
  lines = std::max<int64_t>(1, std::min(s.rows * s.queries * s.heads, max_bytes / of_line));
  entries = Tensor::empty({4, lines * s.chosen}, DType::i32, device);
  parts = Tensor::empty({lines * s.chosen, width}, DType::f32, device);
  if (backward) {
    if (!in.weight.defined()) delta = Tensor::empty({s.rows, s.heads, s.queries}, DType::f32, device);
  } else {
    gates = Tensor::empty({lines * s.chosen}, DType::f32, device);
  }
}

ListBackwardScratch::ListBackwardScratch(const ListedSizes& s, const ops::ListedAttentionGradients& g,
                                         const ops::ListedAttentionInputs& in) {
  const Device device = in.q.device();
  const DType wide = wide_type(in.q.dtype());
  if (in.weight.defined()) inner = Tensor::empty({s.rows, s.heads, s.queries, s.chosen}, wide, device);
  if (!g.dkeys.defined() && !g.dvalues.defined() && !g.down_keys.defined() && !g.down_values.defined()) return;
  entries = Tensor::empty({4, s.rows * s.queries * s.heads * s.chosen}, DType::i32, device);
  if (!in.weight.defined()) delta = Tensor::empty({s.rows, s.heads, s.queries}, wide, device);
}

CodeScratch::CodeScratch(const CodeAttentionSizes& s, Device device)
    : codebook(Tensor::empty({s.kv_heads, s.codes, s.size}, DType::bf16, device)) {}

CodeBackwardScratch::CodeBackwardScratch(const CodeAttentionSizes& s, bool with_du, DType wide, Device device) {
  if (with_du) terms = Tensor::empty({s.rows, s.queries, s.heads, s.size}, wide, device);
}

DeltaBackwardScratch::DeltaBackwardScratch(const DeltaSizes& s, DType wide, Device device)
    : dq(Tensor::empty({s.cells, s.value_heads, s.key}, wide, device)),
      dk(Tensor::empty({s.cells, s.value_heads, s.key}, wide, device)),
      memory(Tensor::empty({s.segments * s.value_heads, (ops::kDeltaChunk + 1) * (s.key + 1) * s.value + 2 * s.key},
                           wide, device)) {}

int64_t SearchScratch::bytes_on_tensor_cores(int64_t width, DType stored, int64_t queries, int64_t best,
                                             bool bucketed) {
  const int64_t of_number = static_cast<int64_t>(size_of(DType::bf16));
  const int64_t with_raw = stored == DType::bf16 ? 2 * of_number : of_number + 1;
  const int64_t pair = sizeof(float) + sizeof(int32_t);
  const int64_t factors = kGpuTile * static_cast<int64_t>(sizeof(float));
  // Two tiles' buckets and entries; or what is staged and how much it is.
  const int64_t besides = bucketed ? 2 * kGpuTile * pair : queries * (kStage * pair + int64_t{sizeof(int32_t)});
  return kGpuTile * width * with_raw + factors + besides + queries * best * pair;
}

void SearchScratch::set_kernel(const KnnSizes& s, const Tensor& q, const ops::KnnMemory& memory, bool bucketed) {
  constexpr int64_t kBytes = 16;
  const DType stored = memory.keys.dtype();
  const auto aligned = [](const Tensor& tensor) {
    return tensor.is_meta() || reinterpret_cast<uintptr_t>(tensor.raw()) % kBytes == 0;
  };
  const bool suits = q.dtype() == DType::bf16 && (stored == DType::bf16 || ops::has_scale(stored)) && s.size > 0 &&
                     s.size <= kWidest && s.size * static_cast<int64_t>(size_of(stored)) % kBytes == 0 &&
                     s.size * static_cast<int64_t>(size_of(q.dtype())) % kBytes == 0 && aligned(q) &&
                     aligned(memory.keys);
  if (!suits) return;
  // As many queries as there are, up to two tiles, where their best fit.
  const auto fits = [&](int64_t of_block, int64_t best) {
    return bytes_on_tensor_cores(width(s), stored, of_block, best, bucketed) <= kMaxShared;
  };
  const int64_t max_queries = s.queries * s.group() > kGpuTile ? 2 * kGpuTile : kGpuTile;
  if (bucketed) {
    const int64_t stride = bucket_stride(s.top_k);
    if (s.top_k < kFewest || !fits(kGpuTile, stride)) return;
    queries = fits(max_queries, stride) ? max_queries : kGpuTile;
  } else {
    queries = max_queries;
    shared = fits(max_queries, s.top_k);
  }
  tensor_cores = true;
}

SearchScratch::SearchScratch(const KnnSizes& s, const Tensor& index, const Tensor& q, const ops::KnnMemory& memory,
                             bool bucketed, Device device) {
  constexpr int64_t kKeysOfPart = 1024;
  constexpr int64_t kPieceBytes = int64_t{32} << 20;
  constexpr int64_t kPieces = 4;
  const DType score = wide_type(q.dtype());
  const auto pair = static_cast<int64_t>(size_of(score) + sizeof(int32_t));
  set_kernel(s, q, memory, bucketed);
  if (!tensor_cores) {
    // The best of a block's queries are kept in shared memory when they take no more bytes, beside tiles of the type.
    const int64_t max_bytes = int64_t{score == DType::f64 ? 24 : 40} << 10;
    shared = s.top_k * pair <= max_bytes / kGpuTile;
  }
  tiles = ceil_div(s.queries * s.group(), queries);
  const int64_t heads = s.rows * s.kv_heads * tiles;
  int64_t slots = s.slots;
  if (tensor_cores && memory.in_host_memory) {
    const int64_t of_slot = s.rows * s.kv_heads * s.size * static_cast<int64_t>(size_of(memory.keys.dtype()));
    const int64_t max_piece = std::max<int64_t>(1, ceil_div(s.slots, kPieces * kGpuTile));
    piece = std::clamp(kPieceBytes / of_slot / kGpuTile, int64_t{1}, max_piece) * kGpuTile;
    slots = std::min(slots, piece);
    for (int n = 0; n < (piece < s.slots ? 2 : 1); ++n) {
      keys[n] = Tensor::empty({s.rows, slots, s.kv_heads, s.size}, memory.keys.dtype(), device);
      if (memory.key_scale.defined()) {
        key_scale[n] = Tensor::empty({s.rows, slots, s.kv_heads}, DType::bf16, device);
      }
    }
  }
  // Every part begins without entries, which costs more beside tensor cores.
  const int64_t min_blocks = tensor_cores ? 256 : 512;
  const int64_t max_parts = ceil_div(slots, kKeysOfPart);
  const bool whole = (bucketed && !tensor_cores) || max_parts <= 1;
  parts = whole ? 1 : std::min(ceil_div(min_blocks, heads), max_parts);
  blocks = heads * parts;
  if (!shared) {
    best_score = Tensor::empty({blocks, queries, s.top_k}, score, device);
    best_entry = Tensor::empty({blocks, queries, s.top_k}, DType::i32, device);
  }
  if (parts > 1) {
    part_score = Tensor::empty({parts, index.numel()}, score, device);
    part_index = Tensor::empty({parts, index.numel()}, DType::i32, device);
  }
}

}  // namespace quire
