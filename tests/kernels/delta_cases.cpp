// The gated delta rule against the recurrence written out.
#include <cmath>

#include "autograd/functions/convolution.h"
#include "autograd/functions/delta.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

struct Sizes {
  int64_t heads, group, key, value;
  std::vector<int32_t> segments;  // first cell and number of cells of each
  int64_t cells;
  bool decay_by_key, erases, erase_by_key, write_by_value;
};

constexpr double kScale = 0.5;

// inputs: q, k, v, g, erase or undefined, write, state, segments.
Tensors recurrence(const Tensors& in) {
  const int64_t heads = in[0].dim(1), key = in[0].dim(2), value_heads = in[2].dim(1), value = in[2].dim(2);
  const Tensor out = like(in[2]), last = like(in[6]);
  last.copy_from(in[6]);
  const auto gate = [&](const Tensor& of, int64_t cell, int64_t head, int64_t feature) {
    return values(of)[(cell * value_heads + head) * of.dim(2) + (of.dim(2) == 1 ? 0 : feature)];
  };
  const std::vector<int32_t> segments = in[7].to_vector<int32_t>();
  for (int64_t s = 0; s < in[7].dim(0); ++s) {
    const int64_t begin = segments[static_cast<size_t>(2 * s)], count = segments[static_cast<size_t>(2 * s + 1)];
    for (int64_t cell = begin; cell < begin + count; ++cell) {
      for (int64_t h = 0; h < value_heads; ++h) {
        double* const state = values(last) + (s * value_heads + h) * key * value;
        const int64_t line = (cell * heads + h * heads / value_heads) * key;
        for (int64_t j = 0; j < value; ++j) {
          const int64_t at = (cell * value_heads + h) * value + j;
          double u = gate(in[5], cell, h, j) * values(in[2])[at];
          for (int64_t d = 0; d < key; ++d) {
            state[d * value + j] *= std::exp(gate(in[3], cell, h, d));
            if (in[4].defined()) u -= gate(in[4], cell, h, d) * values(in[1])[line + d] * state[d * value + j];
          }
          for (int64_t d = 0; d < key; ++d) {
            state[d * value + j] += values(in[1])[line + d] * u;
            values(out)[at] += kScale * values(in[0])[line + d] * state[d * value + j];
          }
        }
      }
    }
  }
  return {out, last};
}

void push(std::vector<OpCase>& cases, RandomTensors& random, const std::string& variant, const Sizes& s) {
  const int64_t value_heads = s.heads * s.group;
  const double unit = 1 / std::sqrt(static_cast<double>(s.key));
  const auto between = [&](const Shape& shape, double low, double high) {  // inside, around the middle
    const Tensor x = random.normal(shape, (high - low) / 8, (low + high) / 2);
    for (int64_t i = 0; i < x.numel(); ++i) {
      values(x)[i] = static_cast<float>(std::min(high, std::max(low, values(x)[i])));
    }
    return x;
  };
  const auto gate = [&](bool by_feature, int64_t features, double low, double high) {
    return between({s.cells, value_heads, by_feature ? features : 1}, low, high);
  };
  const auto segments = static_cast<int64_t>(s.segments.size() / 2);
  const Tensors inputs{random.normal({s.cells, s.heads, s.key}),
                       random.normal({s.cells, s.heads, s.key}, unit),
                       random.normal({s.cells, value_heads, s.value}),
                       gate(s.decay_by_key, s.key, -1, -0.01),
                       s.erases ? gate(s.erase_by_key, s.key, 0.1, 1.2) : Tensor(),
                       gate(s.write_by_value, s.value, 0.1, 1),
                       random.normal({segments, value_heads, s.key, s.value}),
                       Tensor::from(s.segments, {segments, 2})};
  OpCase made =
      function_case("delta_rule", variant, inputs, OpCase::Function([](Tape& t, const Inputs& x) {
                      const DeltaVariables in{
                          .q = x[0], .k = x[1], .v = x[2], .g = x[3], .erase = x[4], .write = x[5], .state = x[6]};
                      const DeltaResult y = delta_rule(t, in, x[7].value(), kScale);
                      return Inputs{y.out, y.last};
                    }));
  made.reference = recurrence;
  made.wide = {3, 4, 5, 6};
  made.sum_length = s.key * 8;
  made.amplification = 4;
  made.roundings = 12;
  cases.push_back(std::move(made));
}

// inputs: x, weight, bias or undefined, before, segments.
Tensors convolution(const Tensors& in) {
  const int64_t channels = in[0].dim(1), taps = in[1].dim(1);
  const Tensor y = like(in[0]);
  const std::vector<int32_t> segments = in[4].to_vector<int32_t>();
  for (int64_t s = 0; s < in[4].dim(0); ++s) {
    const int64_t begin = segments[static_cast<size_t>(2 * s)], count = segments[static_cast<size_t>(2 * s + 1)];
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = in[2].defined() ? values(in[2])[c] : 0;
        for (int64_t i = 0; i < taps; ++i) {
          const int64_t from = t - taps + 1 + i;
          const double x = from >= 0 ? values(in[0])[(begin + from) * channels + c]
                                     : values(in[3])[(s * (taps - 1) + taps - 1 + from) * channels + c];
          sum += values(in[1])[c * taps + i] * x;
        }
        values(y)[(begin + t) * channels + c] = sum / (1 + std::exp(-sum));
      }
    }
  }
  return {y};
}

void push_convolution(std::vector<OpCase>& cases, RandomTensors& random, const std::string& variant, int64_t channels,
                      int64_t taps, const std::vector<int32_t>& segments, bool bias) {
  const auto count = static_cast<int64_t>(segments.size() / 2);
  const int64_t cells = segments[segments.size() - 2] + segments.back() + 1;
  OpCase made = function_case("short_convolution", variant,
                              {random.normal({cells, channels}), random.normal({channels, taps}, 0.5),
                               bias ? random.normal({channels}) : Tensor(), random.normal({count, taps - 1, channels}),
                               Tensor::from(segments, {count, 2})},
                              one_output([](Tape& t, const Inputs& x) {
                                return short_convolution(t, {x[0], x[1], x[2], x[3].value()}, x[4].value());
                              }));
  made.reference = convolution;
  made.constants = {3};
  made.wide = {2, 3};
  made.sum_length = cells;
  cases.push_back(std::move(made));
}

// inputs: a, log_rate or undefined, bias.
void push_decay(std::vector<OpCase>& cases, RandomTensors& random, const std::string& variant, const Shape& shape,
                double bound, bool rated) {
  OpCase made = function_case(
      "delta_decay", variant,
      {random.normal(shape, 2), rated ? random.normal({shape[1]}) : Tensor(), random.normal({shape[1], shape[2]})},
      one_output([bound](Tape& t, const Inputs& x) {
        return delta_decay(t, {x[0], x[1], x[2]}, bound);
      }));
  made.reference = [bound](const Tensors& in) {
    const Tensor g = like(in[0]);
    const int64_t features = in[0].dim(2), columns = in[0].dim(1) * features;
    for (int64_t i = 0; i < g.numel(); ++i) {
      const double x = values(in[0])[i] + values(in[2])[i % columns];
      const double rate = in[1].defined() ? std::exp(values(in[1])[i % columns / features]) : 1;
      values(g)[i] = bound == 0 ? -rate * std::log1p(std::exp(x)) : bound / (1 + std::exp(-rate * x));
    }
    return Tensors{g};
  };
  made.wide = {1, 2};
  made.sum_length = shape.numel() / shape[1];
  made.amplification = 4;
  cases.push_back(std::move(made));
}

}  // namespace

void add_delta_rule_cases(std::vector<OpCase>& cases) {
  RandomTensors random(31);
  push(cases, random, "one_token", {1, 1, 1, 1, {0, 1}, 1, false, true, false, false});
  push(cases, random, "scalar", {2, 2, 3, 5, {1, 4, 5, 1, 7, 3}, 11, false, true, false, false});
  push(cases, random, "channel", {2, 1, 5, 3, {0, 3, 3, 4}, 7, true, true, false, false});
  push(cases, random, "erase_and_write", {1, 2, 4, 7, {0, 5, 5, 2}, 7, true, true, true, true});
  push(cases, random, "additive", {1, 2, 3, 2, {0, 6}, 7, false, false, false, false});
  push(cases, random, "additive_channel", {1, 1, 3, 2, {0, 6}, 6, true, false, false, false});
  push(cases, random, "chunks", {1, 1, 3, 2, {0, 31, 31, 67, 98, 32}, 130, true, true, false, false});
  push(cases, random, "wide", {1, 2, 17, 37, {0, 21, 21, 12}, 33, true, true, false, false});
  push_convolution(cases, random, "one_tap", 3, 1, {0, 2}, false);
  push_convolution(cases, random, "short_segments", 5, 4, {1, 2, 3, 1, 4, 9}, true);
  push_convolution(cases, random, "wide", 83, 3, {0, 71, 71, 20}, false);
  push_decay(cases, random, "scalar", {7, 3, 1}, 0, true);
  push_decay(cases, random, "channel", {9, 2, 37}, 0, true);
  push_decay(cases, random, "bounded", {5, 3, 4}, -5, true);
  push_decay(cases, random, "bounded_free", {5, 2, 3}, -5, false);
}

}  // namespace quire::test
