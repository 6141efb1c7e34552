// Feedback (Hutchins et al. 2022; block_feedback of the published code): one layer of a model has states, and the
// tokens of all layers read them as they were before a token's window. So all layers read a window before any reads the
// next.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "layers/mixers/block_recurrent_tokens.h"
#include "layers/mixers/block_recurrent_vectors.h"
#include "layers/mixers/block_recurrent_walk.h"
#include "layers/model/block.h"
#include "layers/model/stack.h"

namespace quire {

// Shows tests the values of a pass by name, once in each step.
struct FeedbackHooks {
  std::function<void(const std::string& name, const Variable& value)> seen;

  void see(const std::string& name, const Variable& value) const {
    if (seen) seen(name, value);
  }
};

// A layer whose tokens read one step: the tables of the step, the states and the keys before it are values of the pass.
class FeedbackLayer final : public Part {
 public:
  struct OfStep {
    ValueId visible, list, state_keys, state_values;
  };
  struct Keys {
    ValueId k, v;  // [R, .., H, D]
  };
  // owns: the states are this layer's. before: the keys of earlier steps.
  FeedbackLayer(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables, bool owns,
                const OfStep& step, const Keys& before, const FeedbackHooks& hooks);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }

  const std::string& name() const { return name_; }
  const RecurrentTokens& tokens() const { return tokens_; }
  const RecurrentVectors& vectors() const { return *vectors_; }  // of the layer that owns the states
  const Keys& before() const { return before_; }
  const Keys& own() const { return own_; }  // of the step: what the layer leaves

 private:
  std::string name_;
  BlockRecurrentConfig config_;
  RecurrentTokens tokens_;
  std::optional<RecurrentVectors> vectors_;
  OfStep step_;
  Keys before_, own_;
  const FeedbackHooks& hooks_;
};

class FeedbackStack final : public Stack {
 public:
  FeedbackStack(const Scope& scope, const ModelConfig& model);

  Variable operator()(const Forward& f, const Variable& x) const override;

  void set_hooks(FeedbackHooks hooks) { hooks_ = std::move(hooks); }

 private:
  struct Tail {
    Variable k, v;  // [R, slots, H, D], newest last; undefined without slots
  };
  struct Walk {
    std::vector<RecurrentPiece> pieces;
    WindowWalk windows;
    std::vector<RecurrentTables::Step> updates;
    std::vector<Tail> tails;                  // by layer: before the step
    std::vector<std::vector<Variable>> k, v;  // by layer: of steps where rows end, without a gradient
  };
  Walk begin(const Forward& f, const Variable& x) const;
  // Reads step n: returns [R, W, E] and replaces the states by those after it.
  Variable read(const Forward& f, const Variable& x, size_t n, Walk& walk, Variable& states) const;
  Tail next_tail(Tape& tape, const WindowStep& step, const Tail& tail, const Tail& own,
                 std::map<int64_t, Tensor>& slots) const;
  void keep(const Forward& f, const Walk& walk) const;

  BlockRecurrentConfig config_;
  bool drops_;
  FeedbackLayer::OfStep step_;
  FeedbackHooks hooks_;
  size_t owner_;
  std::vector<FeedbackLayer*> layers_;  // parts of the blocks
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace quire
