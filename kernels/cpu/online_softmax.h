// One block of logits of a softmax that is taken in while they come. Logits lie by key, queries along lanes.
#pragma once

#include "kernels/cpu/product.h"

namespace quire::cpu {

// Of queries in whole vectors: the largest logit so far, the sum of exponentials beside it, and what the last block has
// made of values that were summed before it. tops begin finite, at the lowest number: the difference of two is no NaN.
template <typename T>
struct OnlineSoftmax {
  T* sums;
  T* tops;
  T* corrections;

  // Logits p [count, stride] become exponentials beside the new largest one.
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
  // totals [count, size] of values weighted so far.
  void correct(T* totals, int64_t count, int64_t size) const {
    for (int64_t a = 0; a < count; ++a) {
      if (corrections[a] != T{1}) ArrayView<T>(totals + a * size, size) *= corrections[a];
    }
  }
};

}  // namespace quire::cpu
