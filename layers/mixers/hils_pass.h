// The tensors of a pass of HiLS attention (hils_mix.h).
#pragma once

#include <functional>
#include <utility>

#include "autograd/functions/basic.h"
#include "layers/mixers/hils_chunks.h"

namespace quire {

struct HilsShape {
  int64_t heads, key_heads, size, value_size;  // H, Hk, D, Dv
  int64_t group() const { return heads / key_heads; }
};

// Keys and summaries are rotated by positions that all count from the same place.
struct HilsInput {
  Variable q, score_q;                // [R, T, H, D]
  Variable k, v;                      // [R, T, Hk, D or Dv]
  Variable shared;                    // [R, G, H, D]: queries of landmarks; undefined: their score queries
  Tensor before_keys, before_values;  // [R, before, Hk, ..]; undefined when `before` is 0
  Tensor summaries, biases;           // wide [R, N, H, D], [R, N, H]; undefined when N is 0
  double scale = 1;
  // Returns keys and values [R, n, S, Hk, ..] of stored chunks by their places below N, R n of them; -1: zeros.
  std::function<std::pair<Tensor, Tensor>(const std::vector<int32_t>& places)> fetch = {};
  // Returns make(), or the choice that it made in the first pass of a recomputation.
  std::function<Tensor(const std::function<Tensor()>& make)> choose = [](const auto& make) { return make(); };
};

// The summaries of the chunks that end in the pass.
struct HilsSummaries {
  Variable keys;    // wide [R, G, H, D]
  Variable biases;  // wide [R, G, H]
};

struct HilsMix {
  Variable out;             // [R, T, H, Dv]
  Variable window;          // [R, T, H, Dv]: attention within the window alone
  Variable window_sum;      // wide [R, H, T]: the log of the window's sum of exponentials
  HilsSummaries summaries;  // undefined with window_only, and with summary: exact
  Tensor chosen;     // i32 [R, Hk, T, K]: places below N + G, in ascending order; -1: none. Undefined when K is 0
  Variable scores;   // wide [R, H, T, K]: of the chosen ones
  Variable weights;  // wide [R, H, T, K + 2]: of the chosen ones, the window and the zero of softmax_one
};

}  // namespace quire
