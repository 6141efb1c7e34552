// What a block mixes its tokens with: attention of one kind or another.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layers/forward.h"
#include "layers/position_tables.h"
#include "layers/telemetry.h"

namespace quire {

class Codebook;

// What a block carries of its own inputs (cache.kind: hidden), normalised like the input.
struct CarriedInputs {
  Variable z;                       // [R, M, E], newest last; undefined when the layer's cache is of another kind
  std::span<const int64_t> length;  // valid ones per segment
};

class Mixer {
 public:
  Mixer() = default;
  Mixer(const Mixer&) = delete;
  Mixer& operator=(const Mixer&) = delete;
  virtual ~Mixer() = default;
  // z [R, T, E]: the (normalised) input. Returns what is added to the residual stream, [R, T, E].
  virtual Variable operator()(const Forward& f, const Variable& z, const CarriedInputs& carried) const = 0;
  // Codewords that learn from the keys of a step; nullptr without any.
  virtual Codebook* codebook() const { return nullptr; }
};

}  // namespace quire
