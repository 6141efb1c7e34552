// Asks all mechanisms of a model: the mixer of every layer, the memories beside it, the stack.
#pragma once

#include <functional>

#include "layers/config/model_config.h"
#include "layers/mechanism/mechanism.h"

namespace quire {

// key: the section of the model's configuration that a rule's keys are relative to; empty for mixers and the stack.
using MechanismVisitor = std::function<void(const Mechanism& mechanism, const Place& place, const std::string& key)>;
void visit_mechanisms(const ModelConfig& model, const MechanismVisitor& visit);

// Returns the local attention of the layer's mixer.
std::optional<LocalAttention> local_attention_of(const Place& place);
// Documents of a concatenated row begin at multiples of this.
int64_t alignment_of(const ModelConfig& model);
// Returns what the mechanisms insert into documents. Two that insert different things are refused by the model's check.
Insertion insertion_of(const ModelConfig& model);
// Returns the number of positions after whose multiples the state of a document advances.
int64_t grain_of(const ModelConfig& model);
StepFlops flops_of(const ModelConfig& model, const StepShape& shape);
Promises promises_of(const ModelConfig& model);
// Returns whether some mechanism of the model retrieves (Mechanism::retrieves).
bool retrieves(const ModelConfig& model);

// Computes how many tokens of its document before it a target of the model can see, through the widest of its
// mechanisms.
class ModelReach {
 public:
  explicit ModelReach(const ModelConfig& model);
  ModelReach(const ModelReach&) = delete;
  ModelReach& operator=(const ModelReach&) = delete;
  int64_t operator()(const TargetPlace& target) const;

 private:
  ModelConfig model_;
  std::vector<std::function<int64_t(const TargetPlace&)>> reaches_;
  struct Seen {
    ModelConfig model;
    LayerConfig layer;
  };
  std::vector<std::unique_ptr<Seen>> seen_;  // what the mechanisms' places refer to
};

// The configuration that a model reads with, and whether its result is what training computes.
struct ModelReading {
  ModelConfig model;
  bool as_trained = true;
};
ModelReading reading_of(const ModelConfig& model, int64_t subsequence, Purpose purpose);

}  // namespace quire
