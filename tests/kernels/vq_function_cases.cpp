// Compares vector-quantised keys and attention over them with attention to every token of the document, composed of
// other functions. Row 1 has a second document from token 8 on.
#include <algorithm>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/vq.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/composed_attention.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

constexpr int64_t kRows = 2, kTokens = 15, kHeads = 4, kKeyHeads = 2, kSize = 3, kValueSize = 5, kCodes = 6;
constexpr int64_t kWindow = 5, kBlock = 4;
constexpr double kScale = 0.7;

int64_t document_of(int64_t row, int64_t token) {
  return row == 1 && token >= 8 ? 8 : 0;
}

Tensor rows_of(const std::vector<int32_t>& values) {
  return Tensor::from(values, {kRows, static_cast<int64_t>(values.size()) / kRows});
}

// Holds what the queries of a row find: windows and caches.
struct Places {
  std::vector<int32_t> first_visible, first_in_block, document, origin, limit;

  Places() {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kTokens; ++i) {
        const int64_t start = i / kBlock * kBlock;
        const int64_t first = std::max(start - kWindow, document_of(r, i));
        first_visible.push_back(static_cast<int32_t>(first));
        first_in_block.push_back(static_cast<int32_t>(std::max(first, start)));
        document.push_back(static_cast<int32_t>(document_of(r, i)));
      }
      for (int64_t b = 0; b * kBlock < kTokens + kBlock; ++b) {
        const int64_t start = std::min(b * kBlock, kTokens);
        origin.push_back(static_cast<int32_t>(document_of(r, std::min(start, kTokens - 1))));
        limit.push_back(static_cast<int32_t>(start - kWindow));
      }
    }
  }
};

// Inputs: q, k (codewords), v, r, u, v_bias, codebook, codes, first_visible, first_in_block, origin, limit, document,
// gate.
enum At : size_t {
  kQ,
  kK,
  kV,
  kR,
  kU,
  kVBias,
  kCodebook,
  kCodesAt,
  kFirst,
  kFirstInBlock,
  kOrigin,
  kLimit,
  kDocument,
  kGate
};

Tensors inputs() {
  RandomTensors random(17);
  const Places places;
  // On the bf16 grid, so that keys of every type are codewords.
  const Tensor codebook = converted(converted(random.normal({kKeyHeads, kCodes, kSize}), DType::bf16), DType::f64);
  const Tensor codes = random.integers({kRows, kTokens, kKeyHeads}, 0, kCodes);
  const Tensor keys = Tensor::zeros({kRows, kTokens, kKeyHeads, kSize}, DType::f64);
  for (int64_t i = 0; i < keys.numel(); ++i) {
    const int64_t vector = i / kSize;
    values(keys)[i] =
        values(codebook)[(vector % kKeyHeads * kCodes + codes.data<int32_t>()[vector]) * kSize + i % kSize];
  }
  return {random.normal({kRows, kTokens, kHeads, kSize}),
          keys,
          random.normal({kRows, kTokens, kKeyHeads, kValueSize}),
          random.normal({kWindow + 1, kHeads, kSize}),
          random.normal({kHeads, kSize}),
          random.normal({kHeads, kSize}),
          codebook,
          codes,
          rows_of(places.first_visible),
          rows_of(places.first_in_block),
          rows_of(places.origin),
          rows_of(places.limit),
          rows_of(places.document),
          random.normal({kRows, kTokens, kHeads * kValueSize})};
}

AttentionVariables variables(const Inputs& x) {
  AttentionVariables keys;
  keys.q = x[kQ];
  keys.k = x[kK];
  keys.v = x[kV];
  keys.r = x[kR];
  keys.u = x[kU];
  keys.v_bias = x[kVBias];
  return keys;
}

Variable in_blocks(Tape& t, const Inputs& x, ops::CodeReduction reduction, bool through_cache, bool gate) {
  const DType wide = wide_type(x[kQ].value().dtype());
  const Device device = x[kQ].value().device();
  VqAttentionSettings settings;
  settings.attention.first_visible = x[kFirst].value();
  settings.attention.scale = kScale;
  settings.first_in_block = x[kFirstInBlock].value();
  settings.caches.tokens.codes = x[kCodesAt].value();
  settings.caches.mean = Tensor::zeros({kRows, kKeyHeads, kCodes, kValueSize}, wide, device);
  settings.caches.count = Tensor::zeros({kRows, kKeyHeads, kCodes}, wide, device);
  settings.caches.tokens.origin = x[kOrigin].value();
  settings.caches.tokens.limit = x[kLimit].value();
  settings.caches.reduction = reduction;
  settings.block = kBlock;
  settings.through_cache = through_cache;
  return vq_attention(t, {variables(x), x[kCodebook].value(), gate ? x[kGate] : Variable()}, settings).out;
}

// u8 [R, T, 1, T]: pairs of a query and a key with f(query, key).
Tensor pairs(const std::function<bool(int64_t, int64_t)>& f) {
  std::vector<uint8_t> flags;
  for (int64_t line = 0; line < kRows * kTokens; ++line) {
    for (int64_t j = 0; j < kTokens; ++j) flags.push_back(f(line % kTokens, j) ? 1 : 0);
  }
  return Tensor::from(flags, {kRows, kTokens, 1, kTokens});
}

// Keys that are older than the window of the query's block are constants; so, without gradients through caches, are
// keys and values before the block.
Variable to_every_token(Tape& t, const Inputs& x, bool through_cache) {
  ops::AttentionInputs settings;
  settings.first_visible = x[kDocument].value();
  settings.scale = kScale;
  AttentionVariables constant = variables(x);
  constant.k = constant.k.detached();
  constant.v = constant.v.detached();
  const ComposedKeys keys = composed_keys(t, variables(x), settings);
  const ComposedKeys old = composed_keys(t, constant, settings);
  const int64_t reach = through_cache ? kWindow : 0;
  const Tensor is_near = pairs([&](int64_t i, int64_t j) { return j >= i / kBlock * kBlock - reach; });
  const Variable weights = softmax(t, select(t, is_near, keys.logits, old.logits), keys.mask);
  if (through_cache) return weighted_values(t, weights, keys.values);
  return add(t, weighted_values(t, select(t, is_near, weights, {}), keys.values),
             weighted_values(t, select(t, is_near, {}, weights), old.values));
}

void add_attentions(std::vector<OpCase>& cases) {
  const auto add = [&](const std::string& name, ops::CodeReduction reduction, bool through_cache, bool gate) {
    Tensors tensors = inputs();
    if (!gate) tensors.pop_back();
    OpCase& made = add_composed(
        cases, "vq_attention", name + (through_cache ? "" : "_constant_caches") + (gate ? "_gate" : ""), tensors,
        kRows * kTokens * kTokens,
        [=](Tape& t, const Inputs& x) { return in_blocks(t, x, reduction, through_cache, gate); },
        [=](Tape& t, const Inputs& x) {
          const Variable out = to_every_token(t, x, through_cache);
          return gate ? swiglu(t, reshape(t, x[kGate], out.shape()), out) : out;
        },
        {kU, kVBias, kCodebook});
    made.constants = {kCodebook};
    made.has_derivative = through_cache;
    made.amplification = 8;
    made.roundings = 24;
  };
  for (const bool through_cache : {true, false}) {
    for (const auto& [name, reduction] : {std::pair{"serial", ops::CodeReduction::serial},
                                          {"matmul", ops::CodeReduction::matmul},
                                          {"scan", ops::CodeReduction::scan}}) {
      add(name, reduction, through_cache, false);
    }
    add("serial", ops::CodeReduction::serial, through_cache, true);
  }
}

// x [1, N, 1, 2] and a codebook of two words; the second token is masked.
void add_quantize(std::vector<OpCase>& cases) {
  RandomTensors random(18);
  for (const bool straight_through : {true, false}) {
    OpCase made = function_case("quantize", straight_through ? "straight_through" : "constant",
                                {random.normal({1, 5, 1, 2}), Tensor::from(std::vector<double>{1, 1, -1, 0}, {1, 2, 2}),
                                 Tensor::from(std::vector<uint8_t>{1, 0, 1, 1, 1}, {5})},
                                OpCase::Function([straight_through](Tape& t, const Inputs& x) {
                                  const Quantized found =
                                      quantize(t, x[0], x[1].value(), x[2].value(), straight_through);
                                  return std::vector{found.keys, found.error};
                                }));
    const auto nearest = [](const Tensors& in, int64_t n) {
      const double* x = values(in[0]) + 2 * n;
      const auto distance = [&](const double* c) {
        return (x[0] - c[0]) * (x[0] - c[0]) + (x[1] - c[1]) * (x[1] - c[1]);
      };
      const double* c = values(in[1]);
      return distance(c) <= distance(c + 2) ? c : c + 2;
    };
    made.reference = [nearest](const Tensors& in) {
      const Tensor keys = like(in[0]);
      double error = 0;
      for (int64_t i = 0; i < 10; ++i) {
        values(keys)[i] = nearest(in, i / 2)[i % 2];
        const double difference = values(in[0])[i] - values(keys)[i];
        if (in[2].data<uint8_t>()[i / 2] != 0) error += difference * difference;
      }
      return Tensors{keys, Tensor::from(std::vector<double>{error}, {1})};
    };
    made.gradients = [nearest, straight_through](const Tensors& in) {
      const Tensor dx = straight_through ? first_seed({1, 5, 1, 2}) : like(in[0]);
      for (int64_t i = 0; i < 10; ++i) {
        if (in[2].data<uint8_t>()[i / 2] == 0) continue;
        values(dx)[i] += 2 * (values(in[0])[i] - nearest(in, i / 2)[i % 2]);
      }
      return Tensors{dx};
    };
    made.constants = {1};
    made.wide = {1};
    made.sum_length = 10;
    cases.push_back(made);
  }
}

}  // namespace

void add_vq_function_cases(std::vector<OpCase>& cases) {
  add_attentions(cases);
  add_quantize(cases);
}

}  // namespace quire::test
