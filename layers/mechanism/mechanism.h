// The descriptor of a mechanism: one per kind, with everything that the rest of the program needs to know about it. A
// kind is a mixer (model.attention.kind), a memory beside an attention mixer (model.memory[].kind) or a stack
// (model.stack.kind). layers/mechanism/mechanism_list.h has a line for each.
#pragma once

#include <memory>
#include <optional>
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

// Says where a mechanism stands in a model.
struct Place {
  const ModelConfig& model;  // with the sizes of the layer (ModelConfig::as_seen_by); of a stack the whole model
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

struct LocalAttention {
  int64_t carried = 0;      // tokens that are carried into a subsequence
  bool masks_empty = true;  // slots that no token has filled yet are not seen
  bool takes_memories = true;
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

// Floating-point operations of one step: multiplications and additions.
struct StepFlops {
  double learned = 0;  // forward pass of operations that have a backward pass, which counts as twice this
  double forward = 0;  // of operations without a backward pass
};

// The configuration of a model that reads without training (evaluation, generation). The mechanism may change it.
struct ReadingPlace {
  ModelConfig& model;
  LayerConfig& layer;
  ConfigBox& options;
  int64_t subsequence;
};
enum class Purpose { evaluate, generate };

// The mechanism suite (tests/README.md) measures each of these in every configuration: one that is not kept fails, and
// so does one that is kept without being given.
struct Promises {
  bool exact_gradient = true;    // the gradient agrees with finite differences of the loss
  bool split_invariant = false;  // the cut of a document into subsequences does not change logits
  bool causal = true;            // later tokens change no earlier logit, not in its last bit
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
  // Refused for a new run alone; where training carries nothing between subsequences (data.sampling: windows).
  std::span<const CompositionRule> rules_of_new_runs = {}, rules_without_carry = {};
  bool retrieves = false;  // its queries choose what they read of the past, and report it (layers/pass/retrieval.h)
  // Only the one of its role is set. A mixer may also have make_stack: in a model with the default stack it returns the
  // one that runs the layers, or nullptr where they run one after the other.
  std::unique_ptr<Part> (*make_mixer)(const Scope&, const Place&, const Surroundings&) = nullptr;
  std::unique_ptr<Memory> (*make_memory)(const Scope&, const Place&, const MixerShape&) = nullptr;
  std::unique_ptr<Stack> (*make_stack)(const Scope&, const Place&) = nullptr;
  // For a mixer that reads keys token by token: what it sees. Memories stand beside such mixers only.
  std::optional<LocalAttention> (*local_attention)(const Place&) = [](const Place&) -> std::optional<LocalAttention> {
    return std::nullopt;
  };
  // Documents of a concatenated row begin at multiples of it.
  int64_t (*alignment)(const Place&) = [](const Place&) -> int64_t { return 1; };
  // Ids that stand between the tokens of every document that the model reads.
  Insertion (*insertion)(const Place&) = [](const Place&) { return Insertion{}; };
  // The state of a document advances after multiples of this many positions, however many one call passes.
  int64_t (*grain)(const Place&) = [](const Place&) -> int64_t { return 1; };
  // Changes the configuration to that for reading. Returns whether the result is what training computes.
  bool (*reading)(const ReadingPlace&, Purpose) = [](const ReadingPlace&, Purpose) { return true; };
  // Returns how many tokens of its document before it a target can see through the mechanism.
  int64_t (*reach)(const Place&, const TargetPlace&) = [](const Place&, const TargetPlace&) -> int64_t { return 0; };
  StepFlops (*flops)(const Place&, const StepShape&) = [](const Place&, const StepShape&) { return StepFlops{}; };
  Promises (*promises)(const Place&) = [](const Place&) { return Promises{.split_invariant = true}; };
};

}  // namespace quire
