// A small DRT stack that reads one document in one row, from its beginning, in one or several passes.
#pragma once

#include <gtest/gtest.h>

#include "layers/stacks/drt.h"
#include "layers/state/state_pool.h"
#include "tests/support/hand_batch.h"
#include "tests/support/parameters.h"
#include "tests/support/random_tensor.h"
#include "tests/support/softmax_options.h"
#include "tests/support/test_device.h"

namespace quire::test {

inline constexpr int64_t kWidth = 8;

inline ModelConfig small_model() {
  ModelConfig model;
  model.width = kWidth;
  model.layers = 2;
  model.heads = 2;
  model.mlp.hidden = 8;
  model.position.kind = Position::alibi;
  softmax_options(model).window = 4;
  model.initialization.std = 0.5;
  return model;
}

inline DrtConfig small_stack() {
  DrtConfig drt;
  drt.chunk = 2;
  drt.top_k = 2;
  drt.groups = 1;
  drt.encoder_layers = 1;
  drt.carry.length = 16;
  return drt;
}

class StackReader {
 public:
  StackReader(const ModelConfig& model, const DrtConfig& drt, int64_t longest)
      : model_(model),
        box_(drt),
        scope_(store_, declared_, DType::f64),
        layers_(model_.layer_configs()),
        stack_(scope_.child("stack"), {model_, layers_.front(), box_}) {
    store_.allocate(DType::f64, test_device(), 1);
    pool_.emplace(declared_.state, 1, longest, DType::f64, test_device());
  }

  Variable read(Tape& tape, const Variable& x, int32_t step = 0) {
    const int64_t length = x.dim(1);
    Batch batch = one_segment_from(position_, 1, length);
    if (!document.empty()) batch.names[0] = document;
    for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = batch.position[i] * batch.position[i] % 11;
    pool_->begin_step(batch);
    const StateView view = pool_->view(0, 1);
    Forward f{.tape = tape, .batch = batch, .state = view};
    f.key = RandomKey::of(7, step);
    f.training = training;
    f.values = std::make_shared<std::vector<Variable>>(declared_.values.size());
    retrieved.clear();
    f.retrieved = &retrieved;
    telemetry.clear();
    f.telemetry = &telemetry;
    const Variable y = stack_(f, x);
    pool_->commit();
    position_ += length;
    return y;
  }
  void begin_again() { position_ = 0; }
  void set_hooks(const ChunkHooks& hooks) { stack_.set_hooks(hooks); }

  const std::vector<Retrieval>& reads() { return retrieved["stack.groups.0"]; }
  // The chunks that a position reads, in the order of its list, and their weights.
  std::vector<std::pair<int64_t, double>> of(int64_t t) {
    std::vector<std::pair<int64_t, double>> chunks;
    for (const Retrieval& one : reads()) {
      if (one.t == t) chunks.emplace_back(one.begin / 3, one.weight);
    }
    return chunks;
  }
  const ParameterStore& store() const { return store_; }

  bool training = false;
  std::string document;  // its name in a corpus, if it has one
  Retrievals retrieved;
  Telemetry telemetry;

 private:
  ModelConfig model_;
  ConfigBox box_;
  ParameterStore store_;
  Declarations declared_;
  Scope scope_;
  std::vector<LayerConfig> layers_;
  DrtStack stack_;
  std::optional<StatePool> pool_;
  int64_t position_ = 0;
};

inline Variable states(int64_t length) {
  return Variable::constant(RandomTensors(3).normal({1, length, kWidth}).to(test_device()));
}

}  // namespace quire::test
