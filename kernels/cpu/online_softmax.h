// Online softmax: one block of logits after the other is added. Logits are stored by key, with queries along lanes.
#pragma once

#include "kernels/cpu/product.h"

namespace quire::cpu {

// For each query, in whole vectors: tops, the largest logit so far; sums, the sum of exp(logit - top); corrections, the
// factor exp(old top - new top) of the last block for earlier sums. tops begin at the lowest finite number, so that the
// difference of two is not NaN.
template <typename T>
struct OnlineSoftmax {
  T* sums;
  T* tops;
  T* corrections;

  // Turns logits p [count, stride] into exp(p - new top).
  void take(T* p, int64_t stride, int64_t count, int64_t lanes) const {
    for (int64_t a = 0; a < lanes; a += kLanes<T>) {
      const Vector<T> before = load_vector(tops + a);
      Vector<T> top = before;
      for (int64_t j = 0; j < count; ++j) top = larger<T>(top, load_vector(p + j * stride + a));
      const Vector<T> correction = exponential<T>(before - top);
      Vector<T> sum = load_vector(sums + a) * correction;
      for (int64_t j = 0; j < count; ++j) {
        T* const x = p + j * stride + a;
        const Vector<T> value = exponential<T>(load_vector(x) - top);
        store_vector(x, value);
        sum += value;
      }
      store_vector(corrections + a, correction);
      store_vector(tops + a, top);
      store_vector(sums + a, sum);
    }
  }
  // Multiplies totals [count, size], the weighted sums of values so far, by the corrections.
  void correct(T* totals, int64_t count, int64_t size) const {
    for (int64_t a = 0; a < count; ++a) {
      if (corrections[a] != T{1}) ArrayView<T>(totals + a * size, size) *= corrections[a];
    }
  }
};

}  // namespace quire::cpu
