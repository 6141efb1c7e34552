// Stores what a row carries of the chunks of its document: for each whole chunk its landmark, keys and values, the
// states of the chunk that it has begun, and for each group of layers the list of chunks that the begun one reads.
#pragma once

#include <optional>
#include <vector>

#include "layers/parameters/scope.h"
#include "layers/pass/carried_blocks.h"
#include "layers/pass/fetched_entries.h"
#include "layers/stacks/chunk_cut.h"

namespace quire {

struct ChunkStoreOptions {
  int64_t width;      // E
  int64_t positions;  // C = S + 1
  int64_t capacity;   // chunks that can be read
  int64_t groups;     // G
  int64_t top_k;      // K
  int64_t key_heads;  // Hk
  int64_t head_size;  // D
  LogPlace place = LogPlace::device;
  std::optional<DType> dtype = {};
};

class ChunkStore {
 public:
  ChunkStore(const Scope& scope, const ChunkStoreOptions& options);

  CarriedBlocks carried(const Forward& f) const { return carried_blocks(f, options_.positions, tail_, chunks_, name_); }
  // x [R, T, E] behind the states of the begun chunks, which are constant and stand at the end of the first max_tail
  // places of each row.
  Variable behind_tails(const Forward& f, const CarriedBlocks& carried, const Variable& x) const;
  // Returns [R, last - first, E]: landmarks [first, last) of carried.max_length, oldest first; shorter rows begin with
  // zeros.
  Tensor landmarks(const StateView& state, const CarriedBlocks& carried, int64_t first, int64_t last) const;
  // Returns [R slots, E]: all landmarks as they are stored.
  Tensor all_landmarks(const StateView& state) const;
  // Keys and values [N, S, Hk, D] of stored chunks, which are chosen by slot.
  FetchedEntries fetch(const StateView& state, const Tensor& slot) const {
    return fetch_entries(state, {keys_, values_}, slot);
  }
  // Returns where a row's next chunk goes.
  Tensor head(const StateView& state) const { return state.ring_head(chunks_); }
  int64_t slots(const StateView& state) const { return state.stored_ring(keys_).dim(1); }
  void forget_pages(const StateView& state) const;

  // The list of a group that the pass begins with: ages i32 [R, K] (kernels/place_chunks.h) and weights wide [R, K].
  Tensor ages(const StateView& state, int64_t group) const;
  Tensor weights(const StateView& state, int64_t group) const;

  // Queues what the pass adds: the states x [R, T, E]; of whole chunks the landmarks [R, N, E], keys and values
  // [R N, S, Hk, D].
  void write(const Forward& f, const ChunkCut& cut, const Tensor& x, const Tensor& landmarks, const Tensor& keys,
             const Tensor& values) const;
  // The lists that a group leaves, of ages and weights [R, 1 + N, K].
  void write_lists(const Forward& f, const ChunkCut& cut, int64_t group, const Tensor& ages,
                   const Tensor& weights) const;

 private:
  std::string name_;
  ChunkStoreOptions options_;
  LogGroupId tail_, chunks_, index_;
  LogId states_, keys_, values_, landmarks_;
  std::vector<RegisterId> ages_, weights_;  // by group
};

}  // namespace quire
