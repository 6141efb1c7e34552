// Memories beside the mixer of a layer: what they receive, and what they return. A mechanism is one file pair here,
// with its configuration and its descriptor (layers/mechanism/mechanism.h).
#pragma once

#include <functional>

#include "autograd/functions/attention.h"
#include "layers/pass/forward.h"

namespace quire {

// The heads of the layer's mixer.
struct MixerShape {
  int64_t width;      // E
  int64_t heads;      // H: of queries
  int64_t key_heads;  // Hk: of keys and values, each shared by H / Hk query heads
  int64_t head_size;  // D
};

// Holds the tensors that the attention mixer of the layer computed for the current segment. Queries and keys are
// normalised when qk_norm is on, and never rotated: a rotary memory chooses its own positions.
struct MixerTensors {
  Variable z;         // [R, T, E]: the input of the mixer
  Variable q;         // [R, T, H, D]
  Variable scaled_q;  // [R, T, H, D]: its product with a key is a logit
  Variable k, v;      // [R, T, Hk, D]
  Variable local;     // [R, T, H, D]: local attention; undefined for a memory that joins it
  // The inputs of local attention, for a memory that joins it.
  const AttentionVariables* attention = nullptr;
  const ops::AttentionInputs* settings = nullptr;
  // Keys and values that the cache carries, [R, W, Hk, D], newest last, and how many of them each segment begins with;
  // W is 0 without a cache.
  std::function<std::pair<Tensor, Tensor>()> carried = {};
  std::vector<int64_t> carried_length = {};
  int64_t max_carried = 0;  // W
  // Projects other inputs [R, N, E] to keys and values with the current weights.
  std::function<std::pair<Tensor, Tensor>(const Tensor& z)> project = {};
};

class Memory {
 public:
  virtual ~Memory() = default;
  // Reads what earlier steps wrote, combines it with local attention, queues what this step adds. [R, T, H, D].
  virtual Variable combine(const Forward& f, const MixerTensors& mixer) = 0;
  // True when one softmax covers local keys and entries: the memory then receives the inputs of local attention instead
  // of its result.
  virtual bool joins_attention() const { return false; }
};

}  // namespace quire
