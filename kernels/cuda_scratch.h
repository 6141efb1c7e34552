// Scratch memory that the larger CUDA kernels take beside their operands while a call lasts. Kernels take it through
// these structs, and so does a plan on Device::meta (kernels/planned_scratch.h), so that both have one size. Tensors
// that a call does not need stay undefined.
#pragma once

#include "kernels/attention_sizes.h"
#include "kernels/block_sizes.h"
#include "kernels/delta_sizes.h"
#include "kernels/knn_sizes.h"
#include "kernels/listed_sizes.h"
#include "kernels/vq_sizes.h"

namespace quire {

// Queries, keys or distances that a block of threads works on.
inline constexpr int64_t kGpuTile = 64;

// cuBLASLt's workspace is one block, allocated at the first product.
inline constexpr size_t kProductWorkspaceBytes = size_t{32} << 20;

// attention_backward takes this during the whole call.
struct AttentionBackwardScratch {
  Tensor delta;   // [R, H, T] dout . out
  Tensor ranges;  // i32 [R tiles of queries, 3]

  AttentionBackwardScratch(const AttentionSizes& sizes, DType wide, Device device);
};

// attention_backward takes this for the gradients of keys.
struct KeyGradientScratch {
  Tensor sums;   // [R, H, C + T], sums of the gradients of a key's logits, for du
  Tensor lines;  // [parts, H, D] of du

  KeyGradientScratch(const AttentionSizes& sizes, const ops::AttentionGradients& gradients, DType wide, Device device);
};

// attention_backward takes this for the gradients of position terms, after those of keys.
struct DistanceGradientScratch {
  int64_t groups = 0;  // groups of queries, each with its own sums
  Tensor r_parts;      // [groups, N, H, D]
  Tensor sum_parts;    // [groups, H, N]
  Tensor sums;         // [H, N], undefined where dbias holds them
  Tensor lines;        // [parts, H, D] of dv_bias

  DistanceGradientScratch(const AttentionSizes& sizes, const ops::AttentionGradients& gradients, DType wide,
                          Device device);
  static bool needed(const ops::AttentionGradients& gradients) {
    return gradients.dr.defined() || gradients.dbias.defined() || gradients.dv_bias.defined();
  }
};

// One block of threads adds up this many lines of a weighted sum.
inline constexpr int64_t kLinesOfPart = 512;

// block_attention and its backward pass take this.
inline constexpr int64_t kKeyTileNumbers = 7;
struct BlockScratch {
  Tensor tiles;  // i32 [R, tiles, kKeyTileNumbers]: the keys cut into tiles of whole blocks or parts of long ones

  BlockScratch(const BlockSizes& sizes, Device device);
};

// block_attention_backward takes this as well.
inline constexpr int64_t kLongBlockNumbers = 3;
struct BlockBackwardScratch {
  Tensor delta;        // [R, H, T] dout . out
  Tensor long_blocks;  // [R, H, T, blocks longer than a tile, kLongBlockNumbers], with landmarks

  BlockBackwardScratch(const BlockSizes& sizes, const ops::BlockAttentionInputs& in, Device device);
};

// listed_attention and its backward pass take this in bf16 on tensor cores.
struct ListedScratch {
  int64_t lines;   // queries and heads that are worked on at a time; an entry is one of them and a block that it reads
  Tensor entries;  // i32 [4, lines K]: places of entries, sorted, and the entries; the same as they come
  Tensor parts;    // [lines K, Dv], or D in the backward pass: the results of the entries
  Tensor gates;    // [lines K] of the forward pass
  Tensor delta;    // [R, H, T] of the backward pass without weights: dout . out

  ListedScratch(const ListedSizes& sizes, const ops::ListedAttentionInputs& in, bool backward);
  // Operands of these sizes go to tensor cores when their addresses allow it. One token at a time, as text is
  // generated, has too few queries that could read the same block, if they choose for themselves.
  static bool needed(const ListedSizes& sizes, const ops::ListedAttentionInputs& in) {
    const auto suits = [](int64_t features) { return features > 0 && features % 8 == 0 && features <= 128; };
    return in.q.dtype() == DType::bf16 && in.keys.dtype() == DType::bf16 && suits(sizes.size) &&
           suits(sizes.value_size) && sizes.chosen > 0 && (sizes.queries > 1 || in.weight.defined());
  }

  static inline int64_t max_bytes = int64_t{256} << 20;  // limit of parts; a test may set another number
};

// listed_attention_backward takes this.
struct ListBackwardScratch {
  Tensor inner;    // [R, H, T, K] sums of p dp, with weights
  Tensor entries;  // i32 [4, R T H K] for the gradients of keys and values: places of entries, sorted, and the entries
  Tensor delta;    // [R, H, T] with these, without weights: dout . out

  ListBackwardScratch(const ListedSizes& sizes, const ops::ListedAttentionGradients& gradients,
                      const ops::ListedAttentionInputs& in);
};

// code_attention and its backward pass take this in bf16 on tensor cores.
struct CodeScratch {
  Tensor codebook;  // [Hk, S, D] in bf16

  CodeScratch(const CodeAttentionSizes& sizes, Device device);
  // Operands of these sizes go to tensor cores when their addresses allow it.
  static bool needed(const CodeAttentionSizes& sizes, DType type) {
    return type == DType::bf16 && sizes.size % 8 == 0 && sizes.size <= 128 && sizes.value_size % 8 == 0 &&
           sizes.value_size <= 128 && sizes.codes > 0;
  }
};

// code_attention_backward takes this as well.
struct CodeBackwardScratch {
  Tensor terms;  // [R, T, H, D] of du

  CodeBackwardScratch(const CodeAttentionSizes& sizes, bool with_du, DType wide, Device device);
};

// delta_rule_backward takes this.
struct DeltaBackwardScratch {
  Tensor dq, dk;  // [N, HV, Dk]: of each value head
  // [S HV, of_block()]: the states of a chunk, u of its tokens, du of one, and terms of dg and derase.
  Tensor memory;

  DeltaBackwardScratch(const DeltaSizes& sizes, DType wide, Device device);
};

// A block of threads may have this many bytes of shared memory on every device.
inline constexpr int64_t kMaxShared = int64_t{99} << 10;

// knn_search takes this.
struct SearchScratch {
  // Says whether tensor cores search: in bf16, with keys in bf16 or 8 bits whose lines may be read 16 bytes at a time.
  bool tensor_cores = false;
  int64_t queries = kGpuTile;  // of a block
  int64_t tiles = 0;           // of the queries of a row and key head
  int64_t parts = 1;           // parts of the memory, so that few queries still fill a GPU
  int64_t blocks = 0;          // of threads
  bool shared = true;          // the best entries of a tile lie in shared memory
  Tensor best_score, best_entry;
  Tensor part_score, part_index;
  // A memory in host memory is copied in pieces of this many slots, each while the piece before is searched; 0: it is
  // read in place.
  int64_t piece = 0;
  Tensor keys[2], key_scale[2];

  SearchScratch(const KnnSizes& sizes, const Tensor& index, const Tensor& q, const ops::KnnMemory& memory,
                bool bucketed, Device device);

  static constexpr int64_t kStage = 32;    // entries of a query that wait to be merged into its best, on tensor cores
  static constexpr int64_t kFewest = 8;    // buckets there: 8 neighbours have a writer each
  static constexpr int64_t kWidest = 128;  // features of a head
  // Returns the width of a tile's keys in shared memory. There are two tiles in bf16; of 8 bits, there is one in bf16
  // and one as it is stored.
  static int64_t width(const KnnSizes& sizes) { return sizes.size <= 64 ? 64 : kWidest; }
  // Returns the stride of the best of each bucket, which puts lines of queries into different banks.
  static constexpr int64_t bucket_stride(int64_t top_k) { return (top_k + 3) / 8 * 8 + 4; }
  // Returns the bytes of shared memory of a block on tensor cores; `best` is the number of entries of each query that
  // lie there.
  static int64_t bytes_on_tensor_cores(int64_t width, DType stored, int64_t queries, int64_t best, bool bucketed);

 private:
  void set_kernel(const KnnSizes& sizes, const Tensor& q, const ops::KnnMemory& memory, bool bucketed);
};

}  // namespace quire
