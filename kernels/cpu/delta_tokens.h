// Code that the forward and the backward pass of the gated delta rule share: the vectors of a token.
#pragma once

#include "kernels/cpu/common.h"
#include "kernels/delta_sizes.h"

namespace quire::cpu {

template <typename T>
struct DeltaData {
  DeltaSizes s;
  const T *q, *k, *v, *g, *erase, *write, *state;
  const int32_t* segments;
  T scale;

  explicit DeltaData(const ops::DeltaInputs& in)
      : s(in),
        q(in.q.data<T>()),
        k(in.k.data<T>()),
        v(in.v.data<T>()),
        g(in.g.data<T>()),
        erase(in.erase.defined() ? in.erase.data<T>() : nullptr),
        write(in.write.data<T>()),
        state(in.state.data<T>()),
        segments(in.segments.data<int32_t>()),
        scale(static_cast<T>(in.scale)) {}

  int64_t state_size() const { return s.key * s.value; }
  int64_t state_at(int64_t segment, int64_t head) const { return (segment * s.value_heads + head) * state_size(); }
  int64_t key_at(int64_t cell, int64_t head) const { return (cell * s.heads + head / s.group) * s.key; }
  int64_t gate_at(int64_t cell, int64_t head, int64_t features) const {
    return (cell * s.value_heads + head) * features;
  }
  int64_t value_at(int64_t cell, int64_t head) const { return gate_at(cell, head, s.value); }
  int64_t chunk_at(int64_t begin, int64_t segment, int64_t head, int64_t first) const {
    return state_at(begin / ops::kDeltaChunk + segment + first / ops::kDeltaChunk, head);
  }

  // exp(g) [Dk], erase * k [Dk] and write * v [Dv].
  void token(int64_t cell, int64_t head, T* decay, T* erased, T* written) const {
    const T* const gate = g + gate_at(cell, head, s.decay);
    if (s.decay == s.key) {
      exponentials(decay, gate, s.key);
    } else {
      std::fill(decay, decay + s.key, std::exp(*gate));
    }
    const T* const keys = k + key_at(cell, head);
    for (int64_t d = 0; d < s.key; ++d) {
      erased[d] = s.erase == 0 ? T{0} : keys[d] * erase[gate_at(cell, head, s.erase) + (s.erase == 1 ? 0 : d)];
    }
    const T* const values = v + value_at(cell, head);
    for (int64_t j = 0; j < s.value; ++j) {
      written[j] = values[j] * write[gate_at(cell, head, s.write) + (s.write == 1 ? 0 : j)];
    }
  }
};

}  // namespace quire::cpu
