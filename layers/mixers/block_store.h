// Stores what a layer carries of its document: whole blocks, and the block that the document has begun. These are keys,
// values and, when blocks are chosen, a key that stands for each block. Keys are rotated by their places within their
// blocks, so that a block can be put at any position later by rotating queries (kernels/block_attention.h).
#pragma once

#include <optional>
#include <vector>

#include "layers/parameters/scope.h"
#include "layers/pass/carried_blocks.h"
#include "layers/pass/fetched_entries.h"
#include "layers/position/position_tables.h"

namespace quire {

struct BlockStoreOptions {
  int64_t period;     // positions of a block
  int64_t capacity;   // blocks; the oldest is dropped
  int64_t key_heads;  // Hk
  int64_t size;       // D
  int64_t value_size;
  LogPlace place = LogPlace::device;
  std::optional<DType> dtype = {};
  bool landmarks = false;  // the last key of a block stands for it; otherwise the mean of its keys
};

// Returns keys or values [R, S, Hk, D] at the places index i32 [R, N L], -1 for zeros: [R, N, L, Hk, D].
Tensor blocks_at(const Tensor& lines, const Tensor& index, int64_t length);
// The n-th of what queries have chosen, of i32 [R, T, H, K]: i32 [R, T, H, 1].
Tensor one_of(const Tensor& chosen, int64_t n);
// Returns [R, H, T, N]: scale times the products of queries [R, T, H, D] with the keys [R, N, Hk, D] that stand for
// blocks.
Tensor block_scores(const Tensor& q, const Tensor& keys, double scale);

class BlockStore {
 public:
  BlockStore(const Scope& scope, const BlockStoreOptions& options);

  CarriedBlocks carried(const Forward& f) const { return carried_blocks(f, options_.period, tail_, blocks_, name_); }
  // keys, values [R, T, Hk, ..] behind those of the begun blocks, which are constant and stand at the end of the first
  // max_tail places of each row.
  std::pair<Variable, Variable> behind_tails(Tape& tape, const StateView& state, const CarriedBlocks& carried,
                                             const Variable& keys, const Variable& values) const;
  // Returns the keys that stand for the blocks, [R, max_length, Hk, D], oldest first, at the end of each row.
  Tensor summaries(const StateView& state, const CarriedBlocks& carried) const;

  // Keys and values [N, L, Hk, ..] of stored blocks, which are chosen by slot.
  FetchedEntries fetch(const StateView& state, const Tensor& slot) const {
    return fetch_entries(state, {keys_, values_}, slot);
  }
  // Returns where a row's next block goes.
  Tensor head(const StateView& state) const { return state.ring_head(blocks_); }
  int64_t slots(const StateView& state) const { return state.stored_ring(keys_).dim(1); }
  void forget_pages(const StateView& state) const;

  // Queues what the step adds: keys [R, T, Hk, D], rotated by their places within their blocks, and values.
  void write(const Forward& f, const CarriedBlocks& carried, const Tensor& keys, const Tensor& values) const;

  int64_t period() const { return options_.period; }

 private:
  std::string name_;
  BlockStoreOptions options_;
  LogGroupId tail_, blocks_, index_;
  LogId tail_keys_, tail_values_, keys_, values_, summaries_;
};

}  // namespace quire
