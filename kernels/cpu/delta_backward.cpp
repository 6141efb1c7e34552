// The gradient of the gated delta rule, token by token from the end of a segment. The states within a chunk are
// computed again from the one before it.
#include "kernels/cpu/delta_tokens.h"
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
        chunks_(chunks.data<T>()) {}

  // All value heads of a key head, which add to the same gradients of queries and keys.
  void run(int64_t segment, int64_t key_head) const {
    for (int64_t i = 0; i < in_.s.group; ++i) run_head(segment, key_head * in_.s.group + i);
  }

 private:
  void run_head(int64_t segment, int64_t head) const {
    const int64_t key = in_.s.key, value = in_.s.value, size = in_.state_size();
    const int64_t begin = in_.segments[2 * segment], count = in_.segments[2 * segment + 1];
    T* const ds = to_.dstate.data<T>() + in_.state_at(segment, head);
    if (dlast_ != nullptr) {
      std::copy_n(dlast_ + in_.state_at(segment, head), size, ds);
    } else {
      std::fill_n(ds, size, T{0});
    }
    constexpr int64_t kChunk = ops::kDeltaChunk;
    T* const states = scratch<T>(0, (kChunk + 1) * size);
    T* const decay = scratch<T>(1, kChunk * (2 * key + value));
    for (int64_t first = (count - 1) / kChunk * kChunk; first >= 0 && count > 0; first -= kChunk) {
      const int64_t tokens = std::min(kChunk, count - first);
      std::copy_n(chunks_ + in_.chunk_at(begin, segment, head, first), size, states);
      for (int64_t t = 0; t < tokens; ++t) {
        T* const e = decay + t * (2 * key + value);
        T* const u = e + 2 * key;
        const int64_t cell = begin + first + t;
        in_.token(cell, head, e, e + key, u);
        const T* const before = states + t * size;
        T* const after = states + (t + 1) * size;
        for (int64_t d = 0; d < key; ++d) {
          ArrayView<T>(u, value) -= e[key + d] * e[d] * ConstArrayView<T>(before + d * value, value);
        }
        const T* const k = in_.k + in_.key_at(cell, head);
        for (int64_t d = 0; d < key; ++d) {
          ArrayView<T>(after + d * value, value) =
              e[d] * ConstArrayView<T>(before + d * value, value) + k[d] * ConstArrayView<T>(u, value);
        }
      }
      for (int64_t t = tokens - 1; t >= 0; --t) {
        const T* const e = decay + t * (2 * key + value);
        token(begin + first + t, head, states + t * size, ds, e, e + key, e + 2 * key);
      }
    }
  }

  // before: the state before the token; ds: the gradient of the state after it, which becomes that of `before`.
  void token(int64_t cell, int64_t head, const T* before, T* ds, const T* decay, const T* erased, const T* u) const {
    const DeltaSizes& s = in_.s;
    const int64_t key_at = in_.key_at(cell, head), value_at = in_.value_at(cell, head);
    const T* const q = in_.q + key_at;
    const T* const k = in_.k + key_at;
    const ConstArrayView<T> dout(dout_ + value_at, s.value), written(u, s.value);
    const bool first = head % s.group == 0;
    const auto put = [first](T& to, T term) { to = first ? term : to + term; };
    T* const memory = scratch<T>(2, s.value + s.key);
    ArrayView<T> du(memory, s.value);
    T* const dk = memory + s.value;
    du.setZero();
    const T out_to_u = (written * dout).sum();
    for (int64_t d = 0; d < s.key; ++d) {
      const ConstArrayView<T> old(before + d * s.value, s.value);
      ArrayView<T> line(ds + d * s.value, s.value);
      put(to_.dq.data<T>()[key_at + d], in_.scale * (decay[d] * (old * dout).sum() + k[d] * out_to_u));
      line += in_.scale * q[d] * dout;
      du += k[d] * line;
      dk[d] = (line * written).sum();
    }
    T* const dg = to_.dg.data<T>() + in_.gate_at(cell, head, s.decay);
    T* const derase = s.erase == 0 ? nullptr : to_.derase.data<T>() + in_.gate_at(cell, head, s.erase);
    const T* const erase = s.erase == 0 ? nullptr : in_.erase + in_.gate_at(cell, head, s.erase);
    if (s.decay == 1) dg[0] = 0;
    if (s.erase == 1) derase[0] = 0;
    for (int64_t d = 0; d < s.key; ++d) {
      const ConstArrayView<T> old(before + d * s.value, s.value);
      ArrayView<T> line(ds + d * s.value, s.value);
      if (s.erase != 0) {
        const T derased = -decay[d] * (old * du).sum();
        dk[d] += erase[s.erase == 1 ? 0 : d] * derased;
        T& to = derase[s.erase == 1 ? 0 : d];
        to = (s.erase == 1 ? to : T{0}) + k[d] * derased;
        line -= erased[d] * du;
      }
      line *= decay[d];
      const T decayed = (line * old).sum();
      T& to = dg[s.decay == 1 ? 0 : d];
      to = (s.decay == 1 ? to : T{0}) + decayed;
      put(to_.dk.data<T>()[key_at + d], dk[d]);
    }
    const ConstArrayView<T> values(in_.v + value_at, s.value);
    const int64_t write_at = in_.gate_at(cell, head, s.write);
    ArrayView<T> dv(to_.dv.data<T>() + value_at, s.value);
    if (s.write == 1) {
      dv = in_.write[write_at] * du;
      to_.dwrite.data<T>()[write_at] = (values * du).sum();
    } else {
      dv = ConstArrayView<T>(in_.write + write_at, s.value) * du;
      ArrayView<T>(to_.dwrite.data<T>() + write_at, s.value) = values * du;
    }
  }

  const DeltaData<T>& in_;
  const ops::DeltaGradients& to_;
  const T *dout_, *dlast_, *chunks_;
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
