// Which chunks the layers of one group read: scores between landmarks, and the K best earlier chunks for each.
#pragma once

#include <functional>
#include <optional>

#include "kernels/place_chunks.h"
#include "layers/basic.h"
#include "layers/stacks/chunk_cut.h"
#include "layers/stacks/chunk_store.h"
#include "layers/stacks/drt_config.h"

namespace quire {

// What one group reads: L = 1 + N lists of K chunks for each row, the first of which is that of an earlier subsequence.
struct ChunkLists {
  Tensor own;       // i32 [R, L, K]: chunks of the subsequence, row r has those from r N on; -1: none
  Tensor slot;      // i32 [R, L, K]: stored chunks by slot, row r has those from r slots on; -1: none
  Variable weight;  // wide [R, L, K]
};

// For tests: noise that takes the place of what is drawn, and intermediate values by name.
struct ChunkHooks {
  std::function<double(int64_t group, int64_t row, int64_t chunk, int64_t candidate)> noise;
  std::function<void(const std::string& name, const Variable& value)> seen;

  void see(const std::string& name, const Variable& value) const {
    if (seen) seen(name, value);
  }
};

class ChunkRetriever {
 public:
  ChunkRetriever(const Scope& scope, const ModelConfig& model, const DrtConfig& config, int64_t group);

  // x [R, T, E]: the residual stream that the group begins with. landmarks [R, N, E]: of the whole chunks of the
  // subsequence; stored [R, M, E]: of those of earlier ones, undefined when there are none. store: where the model
  // carries chunks.
  ChunkLists operator()(const Forward& f, const Variable& x, const ChunkCut& cut, const HeldBlocks& held,
                        const Variable& landmarks, const Tensor& stored, const ChunkStore* store,
                        const ChunkHooks& hooks) const;

 private:
  // Candidates of each whole chunk, the stored ones first: u8 [R, N, M + N], and which entries of its list exist:
  // u8 [R, N, K].
  struct Candidates {
    Tensor mask, found;
  };
  // Calls body(row, chunk of the row, candidate, its number in the document) for every candidate of every whole chunk.
  template <typename Body>
  void for_candidates(const ChunkCut& cut, const HeldBlocks& held, Body&& body) const;
  Candidates candidates(const Forward& f, const ChunkCut& cut, const HeldBlocks& held) const;
  // [R, N, M + N], of the type of `like`: Gumbel noise of the candidates, or with scores: random what orders them.
  Tensor noise(const Forward& f, const ChunkCut& cut, const HeldBlocks& held, const Tensor& like,
               const ChunkHooks& hooks) const;
  Variable scores(Tape& tape, const Variable& queries, const Variable& landmarks, const Tensor& stored) const;
  // NAME.back.N: the share of what is read that lies N to 2 N - 1 chunks before the chunk of the query, for N = 1, 2,
  // 4,
  // ...; NAME.largest: the mean of the largest weight of a list, over the queries that read it.
  void report(const Forward& f, const ChunkCut& cut, const HeldBlocks& held, const ops::ChunkPlacing& placing,
              const Tensor& weight) const;

  std::string name_;
  uint32_t random_scope_;
  DrtConfig config_;
  int64_t group_;
  double scale_;
  std::optional<Norm> norm_;
  std::optional<Linear> projection_;
};

}  // namespace quire
