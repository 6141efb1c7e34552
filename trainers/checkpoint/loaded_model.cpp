#include "trainers/checkpoint/loaded_model.h"

namespace quire {

LoadedModel::LoadedModel(const CheckpointReader& reader, RunConfig config, Weights weights)
    : checkpoint_(reader.path()),
      step_(reader.step()),
      config_(std::move(config)),
      weights_(weights),
      machine_(Machine::choose(config_.run)),
      threads_(threads_of(config_.run, Ranks::current())),
      use_(threads_),
      tokenizer_(checkpoint_tokenizer(reader)),
      network_(store_, config_.model, tokenizer_->vocabulary_size(), machine_.dtype) {
  store_.allocate_frozen(machine_.dtype, machine_.device);
  load_weights(reader, store_, weights_);
}

}  // namespace quire
