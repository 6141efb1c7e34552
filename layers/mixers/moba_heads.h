// MoBA (Lu et al. 2025, "Mixture of Block Attention"): a query reads its own block and those past blocks whose mean
// keys have the largest products with it, with one softmax over all their keys. Nothing is learned beside attention,
// and no gradient goes through the choice.
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
#include "layers/mixers/moba_config.h"

namespace quire {

// Computes the heads' outputs from queries, keys and values.
class MobaHeads {
 public:
  MobaHeads(const Scope& scope, const MobaConfig& config, const HeadShape& shape, Position position,
            const RopeConfig& rope, std::shared_ptr<PositionTables> tables);

  // Returns [R, T, H, Dv] of q [R, T, H, D], k [R, T, Hk, D] and v [R, T, Hk, Dv], which are not rotated yet.
  Variable operator()(const Forward& f, const Variable& q, const Variable& k, const Variable& v) const;

 private:
  // Returns the mean keys of the blocks of the pass, [R, G, Hk, D], of keys [R, S, Hk, D].
  Tensor mean_keys(const Forward& f, const CarriedBlocks& carried, const KeyBlocks& blocks, const Tensor& keys) const;
  // Says which of a piece of the stored blocks and of those of the pass a query may choose, u8 [R, T, 1, size].
  Tensor candidates(const Forward& f, const CarriedBlocks& carried, const KeyBlocks& blocks,
                    const BlockPiece& piece) const;
  // Holds the blocks of the pass for listed_attention; a row has up to `count`.
  struct OwnBlocks {
    int64_t count;
    Tensor spans;
    Tensor first;  // i32 [R, T]: for block_attention to each query's own block alone
  };
  OwnBlocks own_blocks(const Forward& f, const CarriedBlocks& carried, const KeyBlocks& blocks) const;
  struct Chosen {
    Tensor block, rotation;  // i32 [R, T, H, K], for listed_attention
    FetchedEntries stored;   // undefined without stored blocks
  };
  Chosen choose(const Forward& f, const CarriedBlocks& carried, const KeyBlocks& blocks, int64_t own_blocks,
                const Tensor& q, const Tensor& keys) const;
  // Returns the products of queries with the summaries of a piece, [R, T, H, size]; `own` are those of the pass.
  Tensor scores(const Forward& f, const CarriedBlocks& carried, const Tensor& q, const Tensor& own,
                const BlockPiece& piece) const;

  std::string name_;
  uint32_t scope_;
  MobaConfig config_;
  HeadShape shape_;
  HeadRotation rotation_;
  double scale_;
  std::optional<BlockLog> store_;
};

}  // namespace quire
