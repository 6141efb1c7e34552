// Chooses the chunks that the layers of one group read, by scores between landmarks: the K best earlier chunks for each
// chunk.
#pragma once

#include <optional>

#include "kernels/block_attention.h"
#include "layers/parts/basic.h"
#include "layers/stacks/drt_choice.h"

namespace quire {

// Holds what one group reads: L = 1 + N lists of K chunks for each row, the first of which is that of an earlier
// subsequence.
struct ChunkLists {
  Tensor own;             // i32 [R, L, K]: chunks of the subsequence, row r has those from r N on; -1: none
  Tensor slot;            // i32 [R, L, K]: stored chunks by slot, row r has those from r slots on; -1: none
  Variable weight;        // wide [R, L, K]
  FetchedEntries stored;  // keys and values of the stored chunks
};

class ChunkRetriever {
 public:
  ChunkRetriever(const Scope& scope, const ModelConfig& model, const DrtConfig& config, int64_t group);

  // x [R, T, E] is the residual stream that the group begins with, and landmarks [R, N, E] those of the whole chunks of
  // the subsequence. `store` exists where the model carries chunks; `below` is what earlier groups read.
  ChunkLists operator()(const Forward& f, const Variable& x, const ChunkCut& cut, const CarriedBlocks& carried,
                        const Variable& landmarks, GivenScores& given, const BlockLog* store,
                        const std::vector<ChunkLists>& below, const ChunkHooks& hooks) const;

 private:
  // Says whether landmarks choose, or weigh what was chosen.
  bool uses_landmarks() const { return !config_.gives_scores() || config_.weights == ChunkWeights::learned; }
  // Returns the scores, wide [R, N, K], of queries [R, N, E] with the landmarks of the chunks that they have chosen;
  // lists without the first one.
  Variable scores(const Forward& f, const Variable& queries, const Variable& landmarks, const Tensor& own,
                  const Tensor& slot, const BlockLog* store) const;
  // Returns the scores [R, N, K] of what was chosen by given ones, as `weights` says.
  Variable given_scores(const GivenScores& given) const;
  // Writes to the state the list of each row's last chunk, with which its next pass begins, from ages and weights
  // [R, 1 + N, K].
  void write_lists(const Forward& f, const ChunkCut& cut, const Tensor& ages, const Tensor& weights) const;
  // NAME.back.N: the share of what is read that lies N to 2 N - 1 chunks before the chunk of the query, for N = 1, 2,
  // 4, ...; NAME.largest: the mean of the largest weight of a list, over the queries that read it; NAME.new: the share
  // of what is read that no group below reads for the same query.
  void report(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, const ops::BlockPlacing& placing,
              const ChunkLists& lists, const std::vector<ChunkLists>& below) const;

  std::string name_;
  DrtConfig config_;
  int64_t group_;
  double scale_;
  ChunkChoice choice_;
  // Rows carry the list that the pass begins with: ages i32 [R, K] (BlockPlacing) and weights wide [R, K].
  RegisterId ages_, weights_;
  std::optional<Norm> norm_;
  std::optional<Linear> projection_;
};

}  // namespace quire
