// The gradient of the gated delta rule in chunks, from the end of a segment. The states within a stored chunk are
// computed again. With the names of delta_chunk.h, D the gradient of the state after a chunk and dO that of its
// outputs,
//   dU = P^T dO + (k e(i, n]) D,   Y = (I + A)^-T dU,   dA_ij = -Y_i . U_j,   dP_ij = dO_i . U_j,
//   d(scale q)_i = e(., i] (S dO_i) + sum_j dP_ij e(j, i] k_j,
//   d(erase k)_i = -e(., i] (S Y_i) + sum_j dA_ij e(j, i] k_j,
//   dk_j = e(j, n] (D U_j) + sum_i e(j, i] (dA_ij erase_i k_i + dP_ij scale q_i), without the part through erase k,
//   d(write v) = Y,   D before the chunk = e(., n] D + (scale q e(., i])^T dO - (erase k e(., i])^T Y.
// Every factor e_t scales what crosses token t, so dg_t is the sum over tokens from t on of (scale q) d(scale q) +
// (erase k) d(erase k) - k dk, plus the part of D that decayed states reach. Terms with j = i cross no token, cancel in
// this sum and are left out of it.
#include "kernels/cpu/delta_chunk.h"
#include "kernels/cpu/lanes.h"
#include "kernels/delta.h"

namespace quire::cpu {

namespace {

template <typename T>
class DeltaBackward {
 public:
  DeltaBackward(const DeltaData<T>& in, const ops::DeltaGradients& to, const Tensor& dout, const Tensor& dlast,
                const Tensor& chunks)
      : in_(in),
        to_(to),
        dout_(dout.data<T>()),
        dlast_(dlast.defined() ? dlast.data<T>() : nullptr),
        chunks_(chunks.data<T>()),
        key_(DeltaChunk<T>::padded(in.s.key)),
        value_(DeltaChunk<T>::padded(in.s.value)) {}

  // All value heads of a key head, which add to the same gradients of queries and keys.
  void run(int64_t segment, int64_t key_head) const {
    for (int64_t i = 0; i < in_.s.group; ++i) run_head(segment, key_head * in_.s.group + i);
  }

 private:
  static constexpr int64_t kStates = ops::kDeltaChunk / kDeltaTokens;

  // Memory of a thread; rows of keys and values are padded.
  struct Memory {
    T* states;              // [kStates, Dk, value]: before each chunk
    T* d;                   // [Dk, value]
    T* transposed;          // [value, key]: a state, transposed
    T* u;                   // [n, value] of each chunk
    T* y;                   // [2 n, value]: Y, then dO
    T *by_state, *by_d;     // S Y and S dO [2 n, key]; D U [n, key]
    T* u_by_feature;        // [value, tokens of a chunk]
    T* pairs;               // [2 n, tokens of a chunk]: Y U^T, then dO U^T
    T *dq, *derased, *dk;   // [n, key]
    T *crossing, *reading;  // [n, key], [key]: terms of dg
  };
  Memory memory() const {
    const int64_t size = in_.s.key * value_, tokens = kDeltaTokens;
    const int64_t count = (kStates + 1) * size + value_ * key_ + (kStates + 2) * tokens * value_ + 7 * tokens * key_ +
                          value_ * tokens + 2 * tokens * tokens + key_;
    T* next = scratch<T>(2, count);
    std::fill_n(next, count, T{0});
    const auto take = [&](int64_t n) { return std::exchange(next, next + n); };
    Memory m;
    m.states = take(kStates * size);
    m.d = take(size);
    m.transposed = take(value_ * key_);
    m.u = take(kStates * tokens * value_);
    m.y = take(2 * tokens * value_);
    m.by_state = take(2 * tokens * key_);
    m.by_d = take(tokens * key_);
    for (T** const lines : {&m.dq, &m.derased, &m.dk}) *lines = take(tokens * key_);
    m.u_by_feature = take(value_ * tokens);
    m.pairs = take(2 * tokens * tokens);
    m.crossing = take(tokens * key_);
    m.reading = take(key_);
    return m;
  }

  void run_head(int64_t segment, int64_t head) const {
    const DeltaSizes& s = in_.s;
    const int64_t begin = in_.segments[2 * segment], count = in_.segments[2 * segment + 1], size = s.key * value_;
    const int64_t chunk_size = DeltaChunk<T>::memory_size(s);
    T* const chunk_memory = scratch<T>(0, kStates * chunk_size);
    std::fill_n(chunk_memory, kStates * chunk_size, T{0});
    std::array<DeltaChunk<T>, kStates> chunks{DeltaChunk<T>(in_, head, chunk_memory),
                                              DeltaChunk<T>(in_, head, chunk_memory + chunk_size)};
    static_assert(kStates == 2);
    const Memory m = memory();
    if (dlast_ != nullptr) {
      const T* const from = dlast_ + in_.state_at(segment, head);
      for (int64_t d = 0; d < s.key; ++d) std::copy_n(from + d * s.value, s.value, m.d + d * value_);
    }
    for (int64_t first = (count - 1) / ops::kDeltaChunk * ops::kDeltaChunk; first >= 0 && count > 0;
         first -= ops::kDeltaChunk) {
      const int64_t tokens = std::min(ops::kDeltaChunk, count - first);
      const T* const kept = chunks_ + in_.chunk_at(begin, segment, head, first);
      for (int64_t d = 0; d < s.key; ++d) std::copy_n(kept + d * s.value, s.value, m.states + d * value_);
      const int64_t parts = ceil_div(tokens, kDeltaTokens);
      for (int64_t part = 0; part < parts; ++part) {
        DeltaChunk<T>& chunk = chunks[static_cast<size_t>(part)];
        T* const state = m.states + part * size;
        T* const u = m.u + part * kDeltaTokens * value_;
        chunk.set(begin + first + part * kDeltaTokens, std::min(kDeltaTokens, tokens - part * kDeltaTokens));
        write(chunk, state, u);
        if (part + 1 == parts) break;
        std::copy_n(state, size, state + size);
        chunk.advance(state + size, u);
      }
      for (int64_t part = parts - 1; part >= 0; --part) {
        backward(chunks[static_cast<size_t>(part)], m, m.states + part * size, m.u + part * kDeltaTokens * value_,
                 begin + first + part * kDeltaTokens, head);
      }
    }
    T* const dstate = to_.dstate.data<T>() + in_.state_at(segment, head);
    for (int64_t d = 0; d < s.key; ++d) std::copy_n(m.d + d * value_, s.value, dstate + d * s.value);
  }

  // u = U of a chunk.
  void write(const DeltaChunk<T>& chunk, const T* state, T* u) const {
    const int64_t count = chunk.n * value_;
    if (!chunk.erases()) {
      std::copy_n(chunk.written, count, u);
      return;
    }
    block_product<T>(u, value_, {chunk.reads + chunk.n * key_, key_}, state, value_, chunk.n, value_, in_.s.key, false);
    for (int64_t i = 0; i < count; ++i) u[i] = chunk.written[i] - u[i];
    chunk.solve(u);
  }

  // to [value, key] = transposed from [Dk, value].
  void transpose(T* to, const T* from) const {
    for (int64_t d = 0; d < in_.s.key; d += kLanes<T>) {
      transpose_rows(to + d, key_, from + d * value_, value_, std::min<int64_t>(kLanes<T>, in_.s.key - d), value_);
    }
  }

  void backward(const DeltaChunk<T>& chunk, const Memory& m, const T* state, const T* u, int64_t cell,
                int64_t head) const {
    const int64_t n = chunk.n, key = in_.s.key;
    T* const y = m.y;
    T* const dout = m.y + n * value_;
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(dout_ + in_.value_at(cell + i, head), in_.s.value, dout + i * value_);
      std::fill_n(dout + i * value_ + in_.s.value, value_ - in_.s.value, T{0});
    }
    block_product<T>(y, value_, {chunk.p, kDeltaTokens}, dout, value_, n, value_, n, false);
    block_product<T>(y, value_, {chunk.writes, key_}, m.d, value_, n, value_, key, true);
    if (chunk.erases()) chunk.solve_transposed(y);

    transpose(m.transposed, m.d);
    block_product<T>(m.by_d, key_, {u, value_}, m.transposed, key_, n, key_, value_, false);
    transpose(m.transposed, state);
    block_product<T>(m.by_state, key_, {y, value_}, m.transposed, key_, 2 * n, key_, value_, false);
    for (int64_t i = 0; i < kDeltaTokens; i += kLanes<T>) {
      transpose_rows(m.u_by_feature + i, kDeltaTokens, u + i * value_, value_, std::clamp<int64_t>(n - i, 0, kLanes<T>),
                     value_);
    }
    block_product<T>(m.pairs, kDeltaTokens, {y, value_}, m.u_by_feature, kDeltaTokens, 2 * n, kDeltaTokens, value_,
                     false);
    add_pairs(chunk, m);
    add_decay(chunk, m, state, cell, head);
    store_keys(chunk, m, cell, head);
    store_values(m, n, cell, head);

    const T* const whole = chunk.since + (n - 1) * key_;
    for (int64_t d = 0; d < key; ++d) {
      for (int64_t j = 0; j < value_; ++j) m.d[d * value_ + j] *= whole[d];
    }
    block_product<T>(m.d, value_, {chunk.reads, key_, true}, dout, value_, key, value_, n, true);
    if (!chunk.erases()) return;
    for (int64_t i = 0; i < n * value_; ++i) y[i] = -y[i];
    block_product<T>(m.d, value_, {chunk.reads + n * key_, key_, true}, y, value_, key, value_, n, true);
  }

  // dq, derased and dk without the terms of j = i.
  void add_pairs(const DeltaChunk<T>& chunk, const Memory& m) const {
    const int64_t n = chunk.n;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t at = i * key_; at < (i + 1) * key_; ++at) {
        m.derased[at] = -chunk.since[at] * m.by_state[at];
        m.dq[at] = chunk.since[at] * m.by_state[n * key_ + at];
      }
    }
    T* const run = scratch<T>(1, key_);
    for (int64_t j = 0; j < n; ++j) {
      std::fill_n(run, key_, T{1});
      T* const dk = m.dk + j * key_;
      std::fill_n(dk, key_, T{0});
      for (int64_t i = j + 1; i < n; ++i) {
        const T da = chunk.erases() ? -m.pairs[i * kDeltaTokens + j] : T{0};
        const T dp = m.pairs[(n + i) * kDeltaTokens + j];
        for (int64_t d = 0; d < key_; d += kLanes<T>) {
          const int64_t at = i * key_ + d;
          const Vector<T> factor = load_vector(run + d) * load_vector(chunk.decay + at);
          const Vector<T> k = factor * load_vector(chunk.k + j * key_ + d);
          store_vector(run + d, factor);
          store_vector(m.derased + at, load_vector(m.derased + at) + da * k);
          store_vector(m.dq + at, load_vector(m.dq + at) + dp * k);
          const Vector<T> term = da * load_vector(chunk.erased + at) + dp * load_vector(chunk.q + at);
          store_vector(dk + d, load_vector(dk + d) + factor * term);
        }
      }
    }
  }

  // Token t decays what earlier tokens and the state before the chunk leave, for later reads and the state after it.
  void add_decay(const DeltaChunk<T>& chunk, const Memory& m, const T* state, int64_t cell, int64_t head) const {
    const DeltaSizes& s = in_.s;
    const int64_t n = chunk.n;
    const T* const whole = chunk.since + (n - 1) * key_;
    for (int64_t d = 0; d < s.key; ++d) {
      const ConstArrayView<T> before(state + d * value_, value_), after(m.d + d * value_, value_);
      m.crossing[d] = whole[d] * (before * after).sum();
    }
    for (int64_t at = 0; at < (n - 1) * key_; ++at) {
      m.crossing[at + key_] = m.crossing[at] + chunk.writes[at] * m.by_d[at];
    }
    std::fill_n(m.reading, key_, T{0});
    for (int64_t t = n - 1; t >= 0; --t) {
      T* const crossing = m.crossing + t * key_;
      for (int64_t d = 0; d < s.key; ++d) {
        const int64_t at = t * key_ + d;
        m.reading[d] += chunk.q[at] * m.dq[at] + chunk.erased[at] * m.derased[at] - chunk.k[at] * m.dk[at];
        crossing[d] += m.reading[d];
      }
      T* const dg = to_.dg.data<T>() + in_.gate_at(cell + t, head, s.decay);
      if (s.decay == 1) {
        *dg = sum_of_line(crossing, s.key);
      } else {
        std::copy_n(crossing, s.key, dg);
      }
    }
  }

  void store_keys(const DeltaChunk<T>& chunk, const Memory& m, int64_t cell, int64_t head) const {
    const DeltaSizes& s = in_.s;
    const bool first = head % s.group == 0;
    for (int64_t i = 0; i < chunk.n; ++i) {
      const int64_t line = i * key_, to = in_.key_at(cell + i, head);
      const T own = m.pairs[(chunk.n + i) * kDeltaTokens + i];
      T* const dq = to_.dq.data<T>() + to;
      T* const dk = to_.dk.data<T>() + to;
      const T* const erase = s.erase == 0 ? nullptr : in_.erase + in_.gate_at(cell + i, head, s.erase);
      T* const derase = s.erase == 0 ? nullptr : to_.derase.data<T>() + in_.gate_at(cell + i, head, s.erase);
      T whole = 0;
      for (int64_t d = 0; d < s.key; ++d) {
        const int64_t at = line + d;
        const T q = in_.scale * (m.dq[at] + own * chunk.k[at]);
        T k = m.dk[at] + own * chunk.q[at] + chunk.until[at] * m.by_d[at];
        if (s.erase != 0) {
          k += erase[s.erase == 1 ? 0 : d] * m.derased[at];
          const T term = chunk.k[at] * m.derased[at];
          whole += term;
          if (s.erase != 1) derase[d] = term;
        }
        dq[d] = first ? q : dq[d] + q;
        dk[d] = first ? k : dk[d] + k;
      }
      if (s.erase == 1) *derase = whole;
    }
  }

  void store_values(const Memory& m, int64_t n, int64_t cell, int64_t head) const {
    const DeltaSizes& s = in_.s;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t value_at = in_.value_at(cell + i, head), write_at = in_.gate_at(cell + i, head, s.write);
      const ConstArrayView<T> dwritten(m.y + i * value_, s.value), v(in_.v + value_at, s.value);
      ArrayView<T> dv(to_.dv.data<T>() + value_at, s.value);
      T* const dwrite = to_.dwrite.data<T>() + write_at;
      if (s.write == 1) {
        dv = in_.write[write_at] * dwritten;
        *dwrite = (v * dwritten).sum();
      } else {
        dv = ConstArrayView<T>(in_.write + write_at, s.value) * dwritten;
        ArrayView<T>(dwrite, s.value) = v * dwritten;
      }
    }
  }

  const DeltaData<T>& in_;
  const ops::DeltaGradients& to_;
  const T *dout_, *dlast_, *chunks_;
  int64_t key_, value_;
};

void delta_rule_backward(const ops::DeltaGradients& to, const Tensor& dout, const Tensor& dlast, const Tensor& chunks,
                         const ops::DeltaInputs& in) {
  dispatch("delta_rule_backward", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const DeltaData<T> data(in);
    for (const Tensor* tensor : {&to.dq, &to.dk, &to.dv, &to.dg, &to.derase, &to.dwrite}) {
      if (tensor->defined()) tensor->zero();  // cells outside segments
    }
    const DeltaBackward<T> backward(data, to, dout, dlast, chunks);
    parallel_for(data.s.segments * data.s.heads,
                 [&](int64_t task) { backward.run(task / data.s.heads, task % data.s.heads); });
  });
}

}  // namespace

void bind_delta_backward() {
  ops::delta_rule_backward.bind(DeviceKind::cpu, delta_rule_backward);
}

}  // namespace quire::cpu
