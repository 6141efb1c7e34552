// Chooses the best earlier chunks for each landmark.
#pragma once

#include <functional>
#include <string>

#include "layers/carried/block_log.h"
#include "layers/carried/choose_blocks.h"
#include "layers/stacks/chunk_cut.h"
#include "layers/stacks/drt_config.h"

namespace quire {

// Hooks of tests: noise that replaces the drawn one, intermediate values by name, and the size of a piece.
struct ChunkHooks {
  std::function<double(int64_t group, int64_t row, int64_t chunk, int64_t candidate)> noise;
  std::function<void(const std::string& name, const Variable& value)> seen;
  int64_t piece = 1024;  // stored candidates that have scores at a time

  void see(const std::string& name, const Variable& value) const {
    if (seen) seen(name, value);
  }
};

// Scores that depend on no parameter (scores: bm25, file). All groups choose the same chunks by them.
struct GivenScores {
  OfPiece of;  // [R, N, size], wide, for each whole chunk of the pass; undefined: scores are learned or drawn
  // Says whether chunk i of a row may read chunk `number` of its document; undefined: it may read all earlier ones.
  std::function<bool(int64_t row, int64_t i, int64_t number)> names;
  // Hold the choice of the first group and its scores, [R, N, K].
  Tensor index, scores;
};

// The M stored chunks of a row, oldest first, and the N of the subsequence are candidates 0 to M + N - 1. Scores are
// computed for one piece of them at a time, so that only the landmarks grow with the document.
class ChunkChoice {
 public:
  // `name` is that of the group's scope, for its random numbers.
  ChunkChoice(const std::string& name, const DrtConfig& config, int64_t group, double scale);

  // Returns i32 [R, N, K]: candidates, the best first; -1: none. queries and landmarks are wide [R, N, E], of the
  // chunks of the subsequence. There is no gradient. `store` has the chunks of earlier subsequences, if there are any.
  // Where scores are given, queries and landmarks are not read.
  Tensor operator()(const Forward& f, const Tensor& queries, const Tensor& landmarks, GivenScores& given,
                    const ChunkCut& cut, const CarriedBlocks& carried, const BlockLog* store,
                    const ChunkHooks& hooks) const;
  // Says which entries of the lists exist: u8 [R, N, K].
  Tensor found(const Forward& f, const GivenScores& given, const ChunkCut& cut, const CarriedBlocks& carried) const;

 private:
  using Piece = BlockPiece;
  // Calls body(row, chunk of the row, candidate, its number in the document) for the candidates of every whole chunk.
  template <typename Body>
  void for_candidates(const GivenScores& given, const ChunkCut& cut, const CarriedBlocks& carried, const Piece& piece,
                      Body&& body) const;
  // Says which of a piece are candidates: u8 [R, N, piece].
  Tensor mask(const Forward& f, const GivenScores& given, const ChunkCut& cut, const CarriedBlocks& carried,
              const Piece& piece) const;
  // Returns the scores by which chunks are chosen, with noise in training: [R, N, piece].
  Tensor wishes(const Forward& f, const Tensor& queries, const Tensor& landmarks, const ChunkCut& cut,
                const CarriedBlocks& carried, const Piece& piece, const BlockLog* store, const ChunkHooks& hooks) const;
  // Returns [R, N, piece]: Gumbel noise of the candidates, or with scores: random the numbers that order them.
  Tensor noise(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, const Piece& piece,
               const Tensor& like, const ChunkHooks& hooks) const;

  DrtConfig config_;
  int64_t group_;
  double scale_;
  uint32_t random_scope_;
};

}  // namespace quire
