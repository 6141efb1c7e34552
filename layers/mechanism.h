// What a mechanism tells about itself: one descriptor per kind, and everything that the rest of the program wants to
// know of it. A kind is one of mixers (model.attention.kind), of memories beside an attention mixer
// (model.memory[].kind) or of stacks (model.stack.kind). layers/mechanism_list.h has a line for each.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/config/config_box.h"
#include "core/insertion.h"

namespace quire {

class Memory;
class Part;
class Scope;
class Stack;
struct LayerConfig;
struct MixerShape;
struct ModelConfig;
struct Surroundings;

enum class Role { mixer, memory, stack };

// Where a mechanism stands in a model.
struct Place {
  const ModelConfig& model;
  const LayerConfig& layer;  // the layer of a mixer or memory; of a stack the first one
  const ConfigBox& options;  // of the mechanism
  int64_t index = 0;         // of the layer
  int64_t before = 0;        // memories of the layer that come before this one
};

// A combination that is refused, and why. The key is relative to the layer's configuration, of a memory to its entry,
// of a stack to the model.
struct CompositionRule {
  const char* key;
  const char* message;
  bool (*refused)(const Place& place);
};

struct StepShape {
  int64_t rows;
  int64_t subsequence;  // T
};

// A target's place: in its document, and in its row.
struct TargetPlace {
  int64_t position;
  int64_t t;
};

// Multiplications and additions of one step.
struct StepFlops {
  double learned = 0;  // in the forward pass of what also has a backward pass, which is counted as two of it
  double forward = 0;  // of what has none
};

// What a model reads with when it is not trained: configurations that the mechanism may change.
struct ReadingPlace {
  ModelConfig& model;
  LayerConfig& layer;
  ConfigBox& options;
  int64_t subsequence;
};
enum class Purpose { evaluate, generate };

struct Promises {
  bool exact_gradient = true;    // differences of the loss find the gradient
  bool split_invariant = false;  // the cut of a document into subsequences does not change logits
  // Logits are those of softmax attention to all earlier tokens, for documents of at most this many tokens.
  int64_t full_attention = 0;
};

struct Mechanism {
  Role role;
  std::string kind;
  std::string help;
  // Options with their default values; none by default.
  ConfigBox (*options)() = nullptr;
  std::span<const CompositionRule> rules = {};
  // The one of its role.
  std::unique_ptr<Part> (*make_mixer)(const Scope&, const Place&, const Surroundings&) = nullptr;
  std::unique_ptr<Memory> (*make_memory)(const Scope&, const Place&, const MixerShape&) = nullptr;
  std::unique_ptr<Stack> (*make_stack)(const Scope&, const Place&) = nullptr;
  // A mixer: memories may stand beside it.
  bool takes_memory = false;
  // Documents of a concatenated row begin at multiples of it.
  int64_t (*alignment)(const Place&) = [](const Place&) -> int64_t { return 1; };
  // Ids that stand between the tokens of every document that the model reads.
  Insertion (*insertion)(const Place&) = [](const Place&) { return Insertion{}; };
  // After how many positions of a document its state advances, however many a call hands in.
  int64_t (*grain)(const Place&) = [](const Place&) -> int64_t { return 1; };
  // Changes the configuration to that for reading; whether the result is what training computes.
  bool (*reading)(const ReadingPlace&, Purpose) = [](const ReadingPlace&, Purpose) { return true; };
  // How many tokens of its document before it a target can see through the mechanism.
  int64_t (*reach)(const Place&, const TargetPlace&) = [](const Place&, const TargetPlace&) -> int64_t { return 0; };
  StepFlops (*flops)(const Place&, const StepShape&) = [](const Place&, const StepShape&) { return StepFlops{}; };
  Promises (*promises)(const Place&) = [](const Place&) { return Promises{.split_invariant = true}; };
};

}  // namespace quire
