// Landmark attention (Mohtashami and Jaggi 2023): a landmark stands behind each block of tokens. Training uses a
// grouped softmax; at inference each query reads those stored blocks of the document whose landmarks have the highest
// scores.
#pragma once

#include <memory>
#include <optional>

#include "autograd/functions/listed_attention.h"
#include "layers/carried/block_log.h"
#include "layers/carried/choose_blocks.h"
#include "layers/mixers/block_report.h"
#include "layers/mixers/head_projections.h"
#include "layers/mixers/head_rotation.h"
#include "layers/mixers/key_blocks.h"
#include "layers/mixers/landmark_config.h"

namespace quire {

// Chooses blocks for all heads of a token (selection: token) or all tokens of a head (head) together: those for which
// the highest score of any of them is largest.
struct SharedChoice {
  BlockSelection selection;
  BlockComparison compare;
  double scale;  // of products
  int64_t top_k;
  int64_t piece = BlockChoice{}.piece;  // blocks that have scores at a time

  // Returns numbers of blocks, i32 [R, 1, T, K] or [R, H, 1, K]; -1: none. q [R, T, H, D], landmarks [R, N, Hk, D].
  // exists u8 [R, 1, 1, N] says which blocks a row has, reads u8 [R, 1, T, 1] which tokens take part.
  Tensor operator()(const Tensor& q, const Tensor& landmarks, const Tensor& exists, const Tensor& reads) const;
};

// Computes the heads' outputs from queries, keys and values.
class LandmarkHeads {
 public:
  LandmarkHeads(const Scope& scope, const LandmarkConfig& config, const HeadShape& shape, Position position,
                const RopeConfig& rope, std::shared_ptr<PositionTables> tables, Initializer context_miss);

  // Returns [R, T, H, Dv] of q [R, T, H, D], k [R, T, Hk, D] and v [R, T, Hk, Dv], which are not rotated yet.
  Variable operator()(const Forward& f, const Variable& q, const Variable& k, const Variable& v) const;

 private:
  // Returns for each row how many blocks stand before its current one, as `positions` puts them.
  std::vector<int64_t> blocks_before(const CarriedBlocks& carried) const;
  // The stored blocks that queries read: q is rotated by the position in the row's current block.
  struct Chosen {
    Tensor slot, rotation;  // i32 [R, T, H, K]
    FetchedEntries blocks;
  };
  Chosen choose(const Forward& f, const CarriedBlocks& carried, const Tensor& q) const;
  Tensor best_blocks(const Forward& f, const CarriedBlocks& carried, const Tensor& q, const Tensor& landmarks) const;
  // `reads` receives the share that each block was read with, where retrievals or telemetry are reported.
  BlockAttention stored(const Forward& f, const CarriedBlocks& carried, const Variable& q, const Chosen& chosen,
                        std::vector<BlockRead>& reads) const;
  // Returns the logit of the context-miss token, [R, T, H, 1].
  Variable context_miss_logit(const Forward& f, const CarriedBlocks& carried, const Variable& q) const;
  // Combines what queries see freely with what the context-miss token controls, if there is any. `read_share` receives
  // the share of the latter, [R, T, H, 1].
  Variable controlled(const Forward& f, const BlockAttention& free, const std::optional<BlockAttention>& others,
                      const CarriedBlocks& carried, const Variable& q, Tensor& read_share) const;

  std::string name_;
  uint32_t scope_;
  LandmarkConfig config_;
  BlockCut cut_;
  HeadRotation rotation_;
  HeadShape shape_;
  double scale_;
  Parameter context_miss_;  // [Hk, D]
  std::optional<BlockLog> store_;
};

}  // namespace quire
