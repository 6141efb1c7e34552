// Infini-attention (Munkhdalai et al. 2024, "Leave No Context Behind"): a token reads the keys of its own block with
// local attention and the earlier blocks of its document through a memory of fixed size, and a gate per head mixes
// both.
#pragma once

#include <memory>

#include "layers/mixers/infini_memory.h"
#include "layers/mixers/local_tail.h"

namespace quire {

class InfiniHeads {
 public:
  InfiniHeads(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables);

  // q [R, T, H, D], k, v [R, T, Hk, D], not rotated. [R, T, H, D].
  Variable operator()(const Forward& f, const Variable& q, const Variable& k, const Variable& v) const;

 private:
  struct Carried : CarriedTokens {
    std::vector<uint8_t> filled;  // [R] 1 where the pass leaves a memory in which something was written
  };
  Carried carried(const Forward& f) const;
  // Also says which memories are filled.
  std::vector<InfiniPiece> pieces(const Forward& f, Carried& carried) const;
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
  InfiniConfig config_;
  HeadShape shape_;
  LocalTail tail_;
  Parameter gate_;        // [H]
  Parameter gate_query_;  // gate.kind: query: [H, D]
  RegisterId matrix_, normaliser_;
};

}  // namespace quire
