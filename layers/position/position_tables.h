// Tables by distance or position that hold no parameters, computed once per size and shared by the layers of a model.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/tensor.h"

namespace quire {

class PositionTables {
 public:
  // [count, width], entry n at distance count - 1 - n (kernels/position.h).
  Tensor sinusoid(int64_t count, int64_t width, int64_t clamp, double base, DType dtype, Device device);
  // [heads, count]: -m d at distance d = count - 1 - n. ALiBi (Press et al. 2022) with slope m = 2^(-8 (h + 1) / heads)
  // of head h = 0, 1, ... for any number of heads, as in DRT (Hu et al. 2025). For powers of two this is the published
  // rule, which otherwise takes slopes from the next power of two.
  Tensor alibi(int64_t heads, int64_t count, DType dtype, Device device);
  // [before + after, 2, P]: rotary angles of positions -before, ..., after - 1 (kernels/rotary.h), each times step.
  // frequencies: P angles per position (rope_frequencies.h).
  Tensor rotary(int64_t before, int64_t after, const std::vector<double>& frequencies, DType dtype, Device device,
                int64_t step = 1);

 private:
  enum class Kind { sinusoid, alibi, rotary };
  struct Key {
    Kind kind;
    int64_t first, second, third;
    double base;
    int64_t step = 1;
    std::vector<double> frequencies = {};
    auto operator<=>(const Key&) const = default;
  };
  Tensor find(const Key& key, const Shape& shape, DType dtype, Device device,
              const std::function<void(const Tensor&)>& fill);

  // Few sizes occur: those of training, and the last partial segment of a prompt.
  std::map<Key, Tensor> tables_;
};

}  // namespace quire
