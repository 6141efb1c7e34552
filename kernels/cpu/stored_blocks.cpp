#include <vector>

#include "kernels/block_sizes.h"
#include "kernels/cpu/turn.h"

namespace quire::cpu {

namespace {

// The blocks that one query reads. S: as keys and values are stored.
template <typename T, typename S>
class QueryReads {
 public:
  QueryReads(const ops::StoredAttentionInputs& in, const StoredSizes& s, int64_t query)
      : in_(in), s_(s), kv_head_(query % s.heads / (s.heads / s.kv_heads)) {
    const int32_t* const slot = in.slot.data<int32_t>() + query * s.chosen;
    for (int64_t n = 0; n < s.chosen; ++n) {
      if (slot[n] < 0) continue;
      QUIRE_CHECK(slot[n] < in.keys.dim(0), "stored_attention: slot {} of {}", slot[n], in.keys.dim(0));
      const int64_t back = in.turn.defined() ? in.turn.data<int32_t>()[query * s.chosen + n] : 0;
      QUIRE_CHECK(!in.table.defined() || (back >= 0 && back < in.table.dim(0)),
                  "stored_attention: {} blocks back in a table of {}", back, in.table.dim(0));
      blocks_.push_back({slot[n], back});
    }
    q_ = in.q.data<T>() + query * s.size;
    turned_ = scratch<T>(0, std::max<int64_t>(1, count() * s.size));
    weights_ = scratch<T>(1, std::max<int64_t>(1, count() * s.length));
    lines_ = scratch<T>(2, s.length * std::max(s.size, s.value_size));
    for (int64_t n = 0; n < count(); ++n) {
      T* const to = turned(n);
      if (in.table.defined()) {
        turn(to, q_, angles(n), in.table.dim(2), s.size, false, in.interleaved);
      } else {
        std::copy(q_, q_ + s.size, to);
      }
    }
  }

  int64_t count() const { return static_cast<int64_t>(blocks_.size()); }
  T* turned(int64_t n) const { return turned_ + n * s_.size; }
  const T* angles(int64_t n) const {
    return in_.table.data<T>() + blocks_[static_cast<size_t>(n)].back * 2 * in_.table.dim(2);
  }
  T* weights(int64_t n) const { return weights_ + n * s_.length; }

  // Lines of a block, in the type that they are computed with, and their stride.
  using Lines = Eigen::Map<const RowMatrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
  Lines keys(int64_t n) const { return lines(in_.keys, n, s_.size); }
  Lines values(int64_t n) const { return lines(in_.values, n, s_.value_size); }

  // Logits of all keys, then the share of each key in the whole; returns the log of the sum.
  T weigh() {
    const int64_t regular = s_.length - (in_.landmarks ? 1 : 0);
    for (int64_t n = 0; n < count(); ++n) {
      Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>(weights(n), s_.length) =
          (keys(n) * Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, 1>>(turned(n), s_.size)).array() *
          static_cast<T>(in_.scale);
    }
    const T none = -std::numeric_limits<T>::infinity();
    T top = none;
    for (int64_t n = 0; n < count(); ++n) {
      for (int64_t j = in_.landmarks ? regular : 0; j < s_.length; ++j) top = std::max(top, weights(n)[j]);
    }
    if (count() == 0 || top == none) {
      std::fill(weights_, weights_ + count() * s_.length, T{0});
      return none;
    }
    T sum = 0;
    for (int64_t n = 0; n < count(); ++n) {
      ArrayView<T> own(weights(n), regular);
      if (in_.landmarks) {
        const T share = std::exp(weights(n)[regular] - top);
        sum += share;
        own = (own - own.maxCoeff()).exp();
        own *= share / own.sum();
        weights(n)[regular] = 0;
      } else {
        own = (own - top).exp();
        sum += own.sum();
      }
    }
    ArrayView<T>(weights_, count() * s_.length) *= T{1} / sum;
    return top + std::log(sum);
  }

 private:
  struct Block {
    int64_t slot, back;
  };

  Lines lines(const Tensor& stored, int64_t n, int64_t size) const {
    const S* const from =
        stored.data<S>() + (blocks_[static_cast<size_t>(n)].slot * s_.length * s_.kv_heads + kv_head_) * size;
    if constexpr (std::is_same_v<S, T>) {
      return Lines(from, s_.length, size, Eigen::OuterStride<>(s_.kv_heads * size));
    } else {
      for (int64_t j = 0; j < s_.length; ++j) {
        for (int64_t d = 0; d < size; ++d) {
          lines_[j * size + d] = static_cast<T>(static_cast<float>(from[j * s_.kv_heads * size + d]));
        }
      }
      return Lines(lines_, s_.length, size, Eigen::OuterStride<>(size));
    }
  }

  const ops::StoredAttentionInputs& in_;
  const StoredSizes& s_;
  int64_t kv_head_;
  std::vector<Block> blocks_;
  const T* q_;
  T *turned_, *weights_, *lines_;
};

// Calls body(reads, query, place of its lse) for every query and head.
template <typename T, typename S, typename Body>
void for_queries(const ops::StoredAttentionInputs& in, const StoredSizes& s, Body&& body) {
  constexpr int64_t kQueries = 32;  // of a task
  const int64_t queries = s.rows * s.queries * s.heads;
  parallel_for(ceil_div(queries, kQueries), [&](int64_t task) {
    for (int64_t query = task * kQueries; query < std::min(queries, (task + 1) * kQueries); ++query) {
      QueryReads<T, S> reads(in, s, query);
      const int64_t head = query % s.heads;
      const int64_t line = query / s.heads;
      body(reads, query, (line / s.queries * s.heads + head) * s.queries + line % s.queries);
    }
  });
}

// Calls function(T{}, S{}).
template <typename Function>
void dispatch_both(const char* op, const ops::StoredAttentionInputs& in, Function&& function) {
  dispatch(op, in.q.dtype(), [&](auto type) {
    if (in.keys.dtype() == in.q.dtype()) return function(type, type);
    function(type, bfloat16{});
  });
}

void stored_attention(const Tensor& out, const Tensor& lse, const ops::StoredAttentionInputs& in) {
  const StoredSizes s(in);
  check_stored_attention(s, out, lse, in);
  dispatch_both("stored_attention", in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    for_queries<T, S>(in, s, [&](QueryReads<T, S>& reads, int64_t query, int64_t line) {
      lse.data<T>()[line] = reads.weigh();
      Eigen::Map<Eigen::Matrix<T, 1, Eigen::Dynamic>> y(out.data<T>() + query * s.value_size, s.value_size);
      y.setZero();
      for (int64_t n = 0; n < reads.count(); ++n) {
        y += Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(reads.weights(n), s.length) * reads.values(n);
      }
    });
  });
}

void stored_attention_backward(const Tensor& dq, const Tensor& dout, const Tensor& dlse, const Tensor& out,
                               const Tensor& lse, const ops::StoredAttentionInputs& in) {
  const StoredSizes s(in);
  check_stored_attention_backward(s, dq, dout, dlse, out, lse, in);
  const int64_t regular = s.length - (in.landmarks ? 1 : 0);
  dispatch_both("stored_attention_backward", in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using Line = Eigen::Matrix<T, Eigen::Dynamic, 1>;
    for_queries<T, S>(in, s, [&](QueryReads<T, S>& reads, int64_t query, int64_t line) {
      Eigen::Map<Line> to(dq.data<T>() + query * s.size, s.size);
      to.setZero();
      if (reads.weigh() == -std::numeric_limits<T>::infinity()) return;
      const Eigen::Map<const Line> dy(dout.data<T>() + query * s.value_size, s.value_size);
      const Eigen::Map<const Line> y(out.data<T>() + query * s.value_size, s.value_size);
      const T delta = dy.dot(y) - (dlse.defined() ? dlse.data<T>()[line] : T{0});
      Eigen::Map<Line> ds(scratch<T>(3, s.length), s.length);
      T* const turned = scratch<T>(4, 2 * s.size);
      for (int64_t n = 0; n < reads.count(); ++n) {
        ds = reads.values(n) * dy;
        ArrayView<T> weights(reads.weights(n), regular);
        ArrayView<T> own(ds.data(), regular);
        if (in.landmarks) {
          // With share a and P the softmax within the block: a P (dw - sum of P dw), and a (sum of P dw - delta).
          const T share = weights.sum();
          const T inner = (weights * own).sum();
          own = weights * (own - (share > T{0} ? inner / share : T{0}));
          ds[regular] = inner - share * delta;
        } else {
          own = weights * (own - delta);
        }
        Eigen::Map<Line> back(turned, s.size);
        back = reads.keys(n).transpose() * ds;
        if (in.table.defined()) {
          turn(turned + s.size, turned, reads.angles(n), in.table.dim(2), s.size, true, in.interleaved);
          to += Eigen::Map<const Line>(turned + s.size, s.size);
        } else {
          to += back;
        }
      }
      to *= static_cast<T>(in.scale);
    });
  });
}

void place_blocks(const Tensor& slot, const Tensor& turn, const Tensor& own, const ops::BlockPlacing& in) {
  check_place_blocks(slot, turn, own, in);
  const int64_t wanted = in.index.dim(3);
  const int64_t queries = wanted == 0 ? 0 : in.index.numel() / wanted;
  for_rows(queries, wanted, [&](int64_t begin, int64_t end) {
    for (int64_t query = begin; query < end; ++query) {
      const int64_t row = query / (in.index.dim(1) * in.index.dim(2));
      const int32_t* const from = in.index.data<int32_t>() + query * wanted;
      const int64_t held = in.length.data<int32_t>()[row];
      const int64_t first = in.first.data<int32_t>()[row];
      std::array<int32_t, ops::kMostChosenBlocks> ages;
      int64_t count = 0;
      for (int64_t n = 0; n < wanted; ++n) {
        own.data<int32_t>()[query * wanted + n] = from[n] >= in.stored ? static_cast<int32_t>(from[n] - in.stored) : -1;
        if (from[n] < first || from[n] >= in.stored) continue;
        ages[static_cast<size_t>(count++)] = static_cast<int32_t>(from[n] - first);
      }
      std::sort(ages.begin(), ages.begin() + count);
      for (int64_t n = 0; n < wanted; ++n) {
        int64_t place = -1;
        int64_t back = -1;
        if (n < count) {
          const int64_t age = ages[static_cast<size_t>(n)];
          place = row * in.slots + (in.head.data<int32_t>()[row] - held + age + 2 * in.slots) % in.slots;
          back = held - age;
          if (in.places.defined()) back = back <= count ? count - n : in.places.data<int32_t>()[row] - n;
        }
        slot.data<int32_t>()[query * wanted + n] = static_cast<int32_t>(place);
        turn.data<int32_t>()[query * wanted + n] = static_cast<int32_t>(back);
      }
    }
  });
}

}  // namespace

void bind_stored_blocks() {
  ops::stored_attention.bind(DeviceKind::cpu, stored_attention);
  ops::stored_attention_backward.bind(DeviceKind::cpu, stored_attention_backward);
  ops::place_blocks.bind(DeviceKind::cpu, place_blocks);
}

}  // namespace quire::cpu
