// Local attention of a mixer that keeps the last tokens of a document from one subsequence to the next, and computes
// blocks of tokens that may begin in one and end in another.
#pragma once

#include <functional>
#include <memory>

#include "autograd/functions/attention.h"
#include "layers/mixers/head_projections.h"
#include "layers/position/position_terms.h"

namespace quire {

// The tokens that the rows carry of their documents when a pass begins.
struct CarriedTokens {
  std::vector<int64_t> position;  // [S] of the first token of each segment
  std::vector<int64_t> kept;      // [S] tokens before it whose keys this pass may need
  int64_t before = 0;             // slots for them, at least the largest of kept
  Variable k, v;                  // [R, before, Hk, D], newest last; undefined when there are none
};

class LocalTail {
 public:
  // length: tokens that a row carries.
  LocalTail(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables, int64_t length);

  // needed: how many tokens before a segment the pass may need, by the position of its first token. slots: there are at
  // least as many, of which those without a token are zero.
  CarriedTokens carried(const Forward& f, const std::function<int64_t(int64_t position)>& needed,
                        int64_t slots = 0) const;
  // Keeps the last tokens of each row's last segment. k, v [R, T, Hk, D], not rotated.
  void keep(const Forward& f, const Variable& k, const Variable& v) const;

  struct Sight {
    std::string name;  // of the table, with `numbers`
    std::vector<int64_t> numbers;
    std::function<int64_t(int64_t position)> back;  // tokens before the one at a position that it sees
    int64_t reach;                                  // above every distance
    bool attend_self = true;
    bool mask_empty = true;  // false: a token also sees slots that its document has no tokens for
    // i32 [R, T]: the first key that each token sees. Where it is given, name, numbers and back are not read.
    Tensor visible = {};
    // [H]: queries and keys are normalised, and logits and position terms are multiplied by its absolute values.
    Variable scale = {};
  };
  // q [R, T, H, D], k, v [R, T, Hk, D], not rotated. [R, T, H, D].
  Variable attend(const Forward& f, const CarriedTokens& carried, const Variable& q, const Variable& k,
                  const Variable& v, const Sight& sight) const;

 private:
  Tensor first_visible(const Forward& f, const CarriedTokens& carried, const Sight& sight) const;

  uint32_t random_scope_;
  HeadShape shape_;
  PositionConfig position_;
  std::vector<double> frequencies_;  // position.kind: rope
  double dropout_;
  int64_t length_;
  std::shared_ptr<PositionTables> tables_;
  PositionTerms position_terms_;
  LogId keys_, values_;
};

}  // namespace quire
