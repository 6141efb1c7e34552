// Stores what a layer carries of a document that is cut into blocks of equal length: the keys, the values and the
// summary of each whole block, and the positions of the begun block, which is not whole yet. Blocks are chosen by their
// summaries. Keys of tokens are rotated by their places within their blocks, so that a block can be put at any position
// later by rotating queries (kernels/block_attention.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/block_attention.h"
#include "layers/carried/carried_blocks.h"
#include "layers/carried/fetched_entries.h"

namespace quire {

struct BlockLogOptions {
  struct Entry {
    std::string name;
    Shape shape;
  };
  int64_t period;               // positions of a block
  int64_t capacity;             // blocks; the oldest is dropped
  std::vector<Entry> begun;     // logs of the begun block, with an entry per position
  std::string name = "blocks";  // of the group of logs of whole blocks
  Shape keys, values;           // of a block: [L, Hk, ..]
  Entry summary;                // of a block
  LogPlace place = LogPlace::device;
  std::optional<DType> dtype = {};  // of keys and values; with i8 and f8 each vector of a key head has a scale
  bool landmarks = false;           // the last key of a block is its summary; otherwise the mean of its keys
};

// Says which of the N blocks that a pass makes of each row enter its state: `count` of them from `first` on, [R] each.
struct AddedBlocks {
  std::vector<int64_t> first, count;
};

class BlockLog {
 public:
  BlockLog(const Scope& scope, const BlockLogOptions& options);

  CarriedBlocks carried(const Forward& f) const { return carried_blocks(f, options_.period, tail_, blocks_, name_); }
  // Returns x [R, T, ..], one for each log of the begun block, behind the carried positions: [R, max_tail + T, ..]. The
  // carried ones have no gradient and stand at the end of the first max_tail places of each row.
  std::vector<Variable> behind_tails(Tape& tape, const StateView& state, const CarriedBlocks& carried,
                                     std::vector<Variable> x) const;
  // Returns summaries [first, last) of carried.max_length, [R, last - first, ..], oldest first, at the end of each row;
  // shorter rows begin with zeros.
  Tensor summaries(const StateView& state, const CarriedBlocks& carried, int64_t first, int64_t last) const;
  // Returns all summaries as they are stored: [R slots, ..].
  Tensor stored_summaries(const StateView& state) const;

  // Keys and values [N, L, Hk, ..] of stored blocks, which are chosen by slot.
  FetchedEntries fetch(const StateView& state, const Tensor& slot, FetchAs as = FetchAs::stored) const {
    return fetch_entries(state, {keys_, values_}, slot, as);
  }
  // Returns where a row's next block goes.
  Tensor head(const StateView& state) const { return state.ring_head(blocks_); }
  int64_t slots(const StateView& state) const { return state.stored_ring(keys_.log).dim(1); }
  void forget_pages(const StateView& state) const;

  // Queues what the pass adds, for logs of keys and values of tokens: keys [R, T, Hk, D], rotated by their places
  // within their blocks, and values.
  void append_tokens(const Forward& f, const CarriedBlocks& carried, const Tensor& keys, const Tensor& values) const;
  // Queues positions of begun blocks, and N blocks of each row: keys, values and summaries [R, N, ..] or [R N, ..].
  // Call both for rows that add nothing as well: a document that begins in them ends what they carried. Undefined
  // tensors: no row has a block.
  void append_begun(const StateView& state, const Tensor& x) const { state.append(begun_.front(), x); }
  void append_blocks(const StateView& state, const AddedBlocks& added, const Tensor& keys, const Tensor& values,
                     const Tensor& summaries) const;

  int64_t period() const { return options_.period; }

 private:
  std::string name_;
  BlockLogOptions options_;
  LogGroupId tail_, blocks_, index_;
  std::vector<LogId> begun_;
  VectorLog keys_, values_;
  LogId summaries_;
};

// Returns the placing of candidates 0 to max_length - 1, the stored blocks, of which a row has the last ones. Without a
// log no row has any. The caller sets `index`.
ops::BlockPlacing placing_of(const BlockLog* log, const StateView& state, const CarriedBlocks& carried);
// Returns blocks [R, N, L, Hk, D] of keys or values [R, S, Hk, D], by the places `index` i32 [R, N L]; -1: zeros.
Tensor blocks_at(const Tensor& lines, const Tensor& index, int64_t length);
// Returns the options for blocks of the tokens' own keys and values; `period` and `capacity` as in BlockLogOptions.
BlockLogOptions log_of_tokens(int64_t period, int64_t capacity, int64_t key_heads, int64_t size, int64_t value_size);

}  // namespace quire
