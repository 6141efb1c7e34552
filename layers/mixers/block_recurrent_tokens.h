// The tokens of a layer that reads state vectors: sliding-window attention, and a second query for the states.
#pragma once

#include <memory>

#include "layers/mixers/block_recurrent_config.h"
#include "layers/mixers/local_tail.h"

namespace quire {

class RecurrentTokens {
 public:
  // carried: tokens whose keys a row carries.
  RecurrentTokens(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables, int64_t carried);

  struct Heads {
    Variable q, k, v;   // [R, T, H, D], not rotated
    Variable q_states;  // [R, T, H, D]: scaled
  };
  Heads heads(Tape& tape, const Variable& z) const;
  // slots: there are at least as many for carried tokens.
  CarriedTokens carried(const Forward& f, int64_t slots = 0) const;
  // Returns [R, T, H, D]. visible i32 [R, T]: the first key that each token sees; by default that of the documents of
  // the pass.
  Variable attend(const Forward& f, const CarriedTokens& carried, const Heads& heads, const Tensor& visible = {}) const;
  void keep(const Forward& f, const Variable& k, const Variable& v) const { tail_.keep(f, k, v); }
  // Returns [R, T, E] of what tokens read in their window and of the states, added to the residual where there is one.
  Variable out(Tape& tape, const Variable& own, const Variable& read, const Variable& residual) const;

 private:
  Variable unit_heads(Tape& tape, const Linear& projection, const Variable& z) const;

  BlockRecurrentConfig config_;
  HeadShape shape_;
  LocalTail tail_;
  Linear query_, key_, value_, state_query_, out_;  // state_query_: of tokens that read the states
  Parameter self_scale_, state_scale_;              // [H]: qk_norm
};

}  // namespace quire
