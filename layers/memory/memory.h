// Memories beside the mixer of a layer. A mechanism is one file pair here, its configuration, and one registry line;
// the trivial ones that prove the interface live in tests/support.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "layers/forward.h"
#include "layers/model_config.h"
#include "layers/scope.h"

namespace quire {

// The heads of the layer's mixer.
struct MixerShape {
  int64_t heads;      // H: of queries
  int64_t key_heads;  // Hk: of keys and values, each shared by H / Hk query heads
  int64_t head_size;  // D
};

// What the softmax mixer of the layer computed for the current segment. Queries and keys are normalised when qk_norm is
// on, and never rotated: a rotary memory chooses its own positions.
struct MixerTensors {
  Variable q;      // [R, T, H, D]
  Variable k, v;   // [R, T, Hk, D]
  Variable local;  // [R, T, H, D]: local attention
};

class Memory {
 public:
  virtual ~Memory() = default;
  // Reads what earlier steps wrote, combines it with local attention, queues what this step adds. [R, T, H, D].
  virtual Variable combine(const Forward& f, const MixerTensors& mixer) = 0;
};

using MemoryFactory =
    std::function<std::unique_ptr<Memory>(const Scope& scope, const MemoryConfig& config, const MixerShape& mixer)>;

bool has_memory(const std::string& kind);
std::string known_memories();  // "knn, ..." or "none yet"
std::unique_ptr<Memory> make_memory(const Scope& scope, const MemoryConfig& config, const MixerShape& mixer);
// For mechanisms outside this folder.
void register_memory(const std::string& kind, MemoryFactory factory);

}  // namespace quire
