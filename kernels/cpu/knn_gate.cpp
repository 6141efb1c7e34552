// The gate between attention to the memory and to local keys, and the share of probability on the memory.
#include "kernels/cpu/common.h"
#include "kernels/knn_sizes.h"

namespace quire::cpu {

namespace {

template <typename T>
T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

// The gate g of each line of [R, T, H]; 0 in closed rows.
template <typename T>
class Gates {
 public:
  Gates(const Tensor& a, const Tensor& bias, const Tensor& content, const Tensor& open)
      : bias_(bias.data<T>()),
        content_(content.defined() ? content.data<T>() : nullptr),
        open_(open.defined() ? open.data<uint8_t>() : nullptr),
        heads_(a.dim(2)),
        lines_(a.dim(1) * a.dim(2)) {}

  bool is_open(int64_t line) const { return open_ == nullptr || open_[line / lines_] != 0; }
  T at(int64_t line) const {
    if (!is_open(line)) return T{0};
    const T bias = bias_[line % heads_];
    return sigmoid(content_ == nullptr ? bias : bias + content_[line]);
  }

 private:
  const T* bias_;
  const T* content_;
  const uint8_t* open_;
  int64_t heads_, lines_;
};

void gate_heads(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& content,
                const Tensor& open) {
  check_gate_heads("gate_heads", out, a, b, bias, content, open);
  const int64_t size = a.dim(3);
  const int64_t lines = a.dim(0) * a.dim(1) * a.dim(2);
  dispatch("gate_heads", a.dtype(), [&](auto type) {
    using T = decltype(type);
    const Gates<T> gates(a, bias, content, open);
    for_rows(lines, size, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const T g = gates.at(line);
        const ConstArrayView<T> from(b.data<T>() + line * size, size);
        ArrayView<T> to(out.data<T>() + line * size, size);
        if (g == T{0}) {
          to = from;
        } else {
          to = g * ConstArrayView<T>(a.data<T>() + line * size, size) + (T{1} - g) * from;
        }
      }
    });
  });
}

void gate_heads_backward(const Tensor& da, const Tensor& db, const Tensor& dbias, const Tensor& dcontent,
                         const Tensor& dout, const Tensor& a, const Tensor& b, const Tensor& bias,
                         const Tensor& content, const Tensor& open) {
  check_gate_heads_backward(da, db, dbias, dcontent, dout, a, b, bias, content, open);
  const int64_t heads = a.dim(2);
  const int64_t size = a.dim(3);
  const int64_t tokens = a.dim(0) * a.dim(1);
  dispatch("gate_heads_backward", a.dtype(), [&](auto type) {
    using T = decltype(type);
    const Gates<T> gates(a, bias, content, open);
    // Sums over tokens are computed in parts, which are added in order.
    const int64_t parts = reduction_parts(tokens);
    const Tensor partial = Tensor::zeros({parts, heads}, bias.dtype());
    parallel_for(parts, [&](int64_t part) {
      T* const sums = partial.data<T>() + part * heads;
      for (int64_t m = tokens * part / parts; m < tokens * (part + 1) / parts; ++m) {
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t line = m * heads + h;
          const int64_t at = line * size;
          const T g = gates.at(line);
          const ConstArrayView<T> gradient(dout.data<T>() + at, size);
          ArrayView<T>(da.data<T>() + at, size) = g * gradient;
          ArrayView<T>(db.data<T>() + at, size) = (T{1} - g) * gradient;
          T slope{0};
          if (gates.is_open(line)) {
            const ConstArrayView<T> x(a.data<T>() + at, size);
            const ConstArrayView<T> y(b.data<T>() + at, size);
            slope = g * (T{1} - g) * (gradient * (x - y)).sum();
            sums[h] += slope;
          }
          if (dcontent.defined()) dcontent.data<T>()[line] = slope;
        }
      }
    });
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t h = 0; h < heads; ++h) dbias.data<T>()[h] += partial.data<T>()[part * heads + h];
    }
  });
}

void softmax_share(const Tensor& share, const Tensor& part, const Tensor& whole) {
  check_softmax_share(share, part, whole);
  dispatch("softmax_share", share.dtype(), [&](auto type) {
    using T = decltype(type);
    for_elements(share.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T all = whole.data<T>()[i];
        const bool empty = all == -std::numeric_limits<T>::infinity();
        share.data<T>()[i] = empty ? T{0} : -std::expm1(part.data<T>()[i] - all);
      }
    });
  });
}

void drop_entries(const Tensor& index, const Tensor& keep) {
  check_drop_entries(index, keep);
  const int64_t per_query = index.numel() / std::max<int64_t>(keep.numel(), 1);
  for (int64_t i = 0; i < keep.numel(); ++i) {
    if (keep.data<uint8_t>()[i] == 0) std::fill_n(index.data<int32_t>() + i * per_query, per_query, -1);
  }
}

}  // namespace

void bind_knn_gate() {
  ops::drop_entries.bind(DeviceKind::cpu, drop_entries);
  ops::gate_heads.bind(DeviceKind::cpu, gate_heads);
  ops::gate_heads_backward.bind(DeviceKind::cpu, gate_heads_backward);
  ops::softmax_share.bind(DeviceKind::cpu, softmax_share);
}

}  // namespace quire::cpu
