// Infini-attention (Munkhdalai et al. 2024, "Leave No Context Behind"): a token reads the keys of its own block with
// local attention and the earlier blocks of its document through a memory of fixed size, and a gate per head mixes
// both.
#pragma once

#include <memory>

#include "autograd/functions/attention.h"
#include "layers/mixers/head_projections.h"
#include "layers/mixers/infini_memory.h"
#include "layers/position/position_terms.h"

namespace quire {

class InfiniHeads {
 public:
  InfiniHeads(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables);

  // q [R, T, H, D], k, v [R, T, Hk, D], not rotated. [R, T, H, D].
  Variable operator()(const Forward& f, const Variable& q, const Variable& k, const Variable& v) const;

 private:
  // Holds what the rows carry of their documents when a pass begins.
  struct Carried {
    std::vector<int64_t> position;  // [S] of the first token of each segment
    std::vector<int64_t> kept;      // [S] tokens before it whose keys this pass may need
    int64_t before = 0;             // slots for them, at least the largest of kept
    std::vector<uint8_t> filled;    // [R] 1 where the pass leaves a memory in which something was written
    Variable k, v;                  // [R, before, Hk, D], newest last; undefined when there are none
  };
  Carried carried(const Forward& f) const;
  // Also says which memories are filled.
  std::vector<InfiniPiece> pieces(const Forward& f, Carried& carried) const;
  void keep_tail(const Forward& f, const Variable& k, const Variable& v) const;
  Tensor first_visible(const Forward& f, const Carried& carried) const;
  Variable local_attention(const Forward& f, const Carried& carried, const Variable& q, const Variable& k,
                           const Variable& v) const;
  struct Remembered {
    Variable out;     // [R, T, H, D], wide; undefined when no token reads the memory
    InfiniState end;  // what the pass leaves
  };
  // Also writes the memory.
  Remembered from_memory(const Forward& f, const Carried& carried, const std::vector<InfiniPiece>& pieces,
                         const Variable& q, const Variable& k, const Variable& v) const;
  Tensor reading(const Forward& f, const std::vector<InfiniPiece>& pieces) const;
  Variable of_queries(Tape& tape, const Variable& q) const;
  void report_share(const Forward& f, const std::vector<InfiniPiece>& pieces, const Variable& found,
                    const Variable& local, const Variable& content) const;
  void report_memory(const Forward& f, const Carried& carried, const InfiniState& end) const;

  std::string name_;
  uint32_t random_scope_;
  InfiniConfig config_;
  HeadShape shape_;
  PositionConfig position_;
  double dropout_;
  std::shared_ptr<PositionTables> tables_;
  PositionTerms position_terms_;
  Parameter gate_;        // [H]
  Parameter gate_query_;  // gate.kind: query: [H, D]
  RegisterId matrix_, normaliser_;
  LogId keys_, values_;
};

}  // namespace quire
