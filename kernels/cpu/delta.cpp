// The gated delta rule as the recurrence over pairs of tokens: two passes over the state for both tokens instead of two
// for each. With S the state before a pair and e, a = erase * k, k, q of its tokens 1 and 2,
//   u1 = w1 v1 - (e1 a1)^T S,   u2 = w2 v2 - (e1 e2 a2)^T S - (e2 a2 . k1) u1,
//   o1 = (e1 q1)^T S + (q1 . k1) u1,   o2 = (e1 e2 q2)^T S + (e2 q2 . k1) u1 + (q2 . k2) u2,
//   S = e1 e2 S + (e2 k1) u1^T + k2 u2^T.
#include "kernels/delta.h"

#include <cstring>

#include "kernels/cpu/delta_tokens.h"

namespace quire::cpu {

namespace {

constexpr int64_t kVectorBytes = 64;
template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type __attribute__((vector_size(kVectorBytes))) = float;
};
template <>
struct VectorOf<double> {
  using Type __attribute__((vector_size(kVectorBytes))) = double;
};
template <typename T>
using Vector = typename VectorOf<T>::Type;
template <typename T>
inline constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));

template <typename T>
Vector<T> load(const T* from) {
  Vector<T> to;
  std::memcpy(&to, from, sizeof(to));
  return to;
}
template <typename T>
void store(T* to, const Vector<T>& from) {
  std::memcpy(to, &from, sizeof(from));
}

// The state of one segment and head while its tokens pass; lines are padded with zeros to whole vectors.
template <typename T>
class PairRecurrence {
 public:
  PairRecurrence(const DeltaData<T>& in, int64_t head)
      : in_(in), head_(head), width_(ceil_div(in.s.value, 2 * kLanes<T>) * 2 * kLanes<T>) {
    const int64_t key = in.s.key;
    T* next = scratch<T>(0, key * width_ + 6 * key + 6 * width_ + 7 * key);
    std::fill(next, next + key * width_ + 6 * key + 6 * width_ + 7 * key, T{0});
    const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
    state_ = take(key * width_);
    for (T*& line : sums_) line = take(width_);
    for (T*& line : written_) line = take(width_);
    reads_ = take(4 * key);
    for (T*& line : decay_) line = take(key);
    for (T*& line : erased_) line = take(key);
    grow_ = take(3 * key);
  }

  void set(const T* state) {
    for (int64_t d = 0; d < in_.s.key; ++d) std::copy_n(state + d * in_.s.value, in_.s.value, state_ + d * width_);
  }
  void get(T* state) const {
    for (int64_t d = 0; d < in_.s.key; ++d) std::copy_n(state_ + d * width_, in_.s.value, state + d * in_.s.value);
  }

  // One or two tokens; a missing second one neither decays nor writes.
  void step(int64_t cell, bool both, T* out) {
    const int64_t key = in_.s.key, width = width_;
    in_.token(cell, head_, decay_[0], erased_[0], written_[0]);
    const T* const k1 = in_.k + in_.key_at(cell, head_);
    const T* const q1 = in_.q + in_.key_at(cell, head_);
    const T* k2 = k1;
    const T* q2 = q1;
    if (both) {
      in_.token(cell + 1, head_, decay_[1], erased_[1], written_[1]);
      k2 = in_.k + in_.key_at(cell + 1, head_);
      q2 = in_.q + in_.key_at(cell + 1, head_);
    }
    T erase_first = 0, read_first = 0, own_first = 0, own_second = 0;
    for (int64_t d = 0; d < key; ++d) {
      const T e1 = decay_[0][d], e2 = both ? decay_[1][d] : T{1}, q = in_.scale * q1[d];
      T* const read = reads_ + 4 * d;
      T* const grow = grow_ + 3 * d;
      read[0] = e1 * erased_[0][d];
      read[1] = e1 * q;
      grow[0] = e1 * e2;
      grow[1] = e2 * k1[d];
      own_first += q * k1[d];
      if (!both) continue;
      const T later = in_.scale * q2[d];
      read[2] = grow[0] * erased_[1][d];
      read[3] = grow[0] * later;
      grow[2] = k2[d];
      erase_first += erased_[1][d] * grow[1];
      read_first += later * grow[1];
      own_second += later * k2[d];
    }
    if (both) {
      read_state<4>();
    } else {
      read_state<2>();
    }
    T* const u1 = written_[0];
    T* const u2 = written_[1];
    for (int64_t j = 0; j < width; ++j) {
      u1[j] -= sums_[0][j];
      sums_[1][j] += own_first * u1[j];
    }
    std::copy_n(sums_[1], in_.s.value, out + in_.value_at(cell, head_));
    if (both) {
      for (int64_t j = 0; j < width; ++j) {
        u2[j] -= sums_[2][j] + erase_first * u1[j];
        sums_[3][j] += read_first * u1[j] + own_second * u2[j];
      }
      std::copy_n(sums_[3], in_.s.value, out + in_.value_at(cell + 1, head_));
      write_state<2>();
    } else {
      write_state<1>();
    }
  }

 private:
  // sums = the first kCount of reads, each times the state.
  template <int kCount>
  void read_state() {
    using V = Vector<T>;
    for (int64_t j = 0; j < width_; j += 2 * kLanes<T>) {
      V low[kCount] = {}, high[kCount] = {};
      const T* line = state_ + j;
      const T* read = reads_;
      for (int64_t d = 0; d < in_.s.key; ++d, line += width_, read += 4) {
        const V first = load(line), second = load(line + kLanes<T>);
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
          low[i] += first * read[i];
          high[i] += second * read[i];
        }
      }
      for (int i = 0; i < kCount; ++i) {
        store(sums_[i] + j, low[i]);
        store(sums_[i] + j + kLanes<T>, high[i]);
      }
    }
  }

  template <int kTokens>
  void write_state() {
    using V = Vector<T>;
    for (int64_t j = 0; j < width_; j += kLanes<T>) {
      V u[kTokens];
      for (int i = 0; i < kTokens; ++i) u[i] = load(written_[i] + j);
      T* line = state_ + j;
      const T* grow = grow_;
      for (int64_t d = 0; d < in_.s.key; ++d, line += width_, grow += 3) {
        V next = load(line) * grow[0];
#pragma GCC unroll 2
        for (int i = 0; i < kTokens; ++i) next += u[i] * grow[1 + i];
        store(line, next);
      }
    }
  }

  const DeltaData<T>& in_;
  int64_t head_, width_;
  T *state_, *sums_[4], *written_[2], *reads_, *decay_[2], *erased_[2], *grow_;
};

void delta_rule(const Tensor& out, const Tensor& last, const Tensor& chunks, const ops::DeltaInputs& in) {
  dispatch("delta_rule", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const DeltaData<T> data(in);
    out.zero();
    parallel_for(data.s.segments * data.s.value_heads, [&](int64_t task) {
      const int64_t segment = task / data.s.value_heads, head = task % data.s.value_heads;
      const int64_t begin = data.segments[2 * segment], count = data.segments[2 * segment + 1];
      PairRecurrence<T> recurrence(data, head);
      recurrence.set(data.state + data.state_at(segment, head));
      for (int64_t t = 0; t < count; t += 2) {
        if (chunks.defined() && t % ops::kDeltaChunk == 0) {
          recurrence.get(chunks.data<T>() + data.chunk_at(begin, segment, head, t));
        }
        recurrence.step(begin + t, t + 1 < count, out.data<T>());
      }
      recurrence.get(last.data<T>() + data.state_at(segment, head));
    });
  });
}

}  // namespace

void bind_delta() {
  ops::delta_rule.bind(DeviceKind::cpu, delta_rule);
}

}  // namespace quire::cpu
