// Attention with vector-quantised keys in block form against attention to every token of the document: the same for
// every length of blocks, every way to sum up caches, in one subsequence or in several.
#include "autograd/functions/vq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autograd/functions/basic.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 23;
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kSize = 3;
constexpr int64_t kValueSize = 5;
constexpr int64_t kCodes = 6;
constexpr int64_t kWindow = 5;
constexpr double kScale = 0.7;

using Values = std::map<std::string, Tensor>;

// Row 1 has a second document from token 8 on.
int64_t document_of(int64_t row, int64_t token) {
  return row == 1 && token >= 8 ? 8 : 0;
}

struct Form {
  int64_t block = 4;
  ops::CodeReduction reduction = ops::CodeReduction::serial;
  bool through_cache = true;
};

Values inputs() {
  RandomTensors random(17);
  Values in;
  in["q"] = random.normal({kRows, kTokens, kHeads, kSize});
  in["k"] = random.normal({kRows, kTokens, kKvHeads, kSize});
  in["v"] = random.normal({kRows, kTokens, kKvHeads, kValueSize});
  in["r"] = random.normal({kWindow + 1, kHeads, kSize});
  in["u"] = random.normal({kHeads, kSize});
  in["v_bias"] = random.normal({kHeads, kSize});
  in["codebook"] = random.normal({kKvHeads, kCodes, kSize});
  in["dout"] = random.normal({kRows, kTokens, kHeads, kValueSize});
  return in;
}

// Holds what the queries of a part of the rows' tokens find: windows and caches, at positions that count from its first
// one.
struct Places {
  std::vector<int32_t> first_visible, first_in_block, origin, limit;

  Places(int64_t begin, int64_t end, int64_t block) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t start = begin + (i - begin) / block * block;
        const int64_t first = std::max(start - kWindow, document_of(r, i));
        first_visible.push_back(static_cast<int32_t>(first - begin));
        first_in_block.push_back(static_cast<int32_t>(std::max(first, start) - begin));
      }
      const int64_t blocks = (end - begin + block - 1) / block;
      for (int64_t b = 0; b <= blocks; ++b) {
        const int64_t start = std::min(begin + b * block, end);
        const int64_t document = document_of(r, std::min(start, kTokens - 1));
        origin.push_back(static_cast<int32_t>(std::max(document - begin, -std::min(begin, kWindow))));
        limit.push_back(static_cast<int32_t>(start - kWindow - begin));
      }
    }
  }
  static Tensor as_rows(const std::vector<int32_t>& values) {
    return Tensor::from(values, {kRows, static_cast<int64_t>(values.size()) / kRows});
  }
};

VqAttentionSettings settings_of(const Places& places, const Form& form, const Tensor& codes, DType type) {
  VqAttentionSettings settings;
  settings.attention.first_visible = Places::as_rows(places.first_visible);
  settings.attention.scale = kScale;
  settings.first_in_block = Places::as_rows(places.first_in_block);
  settings.caches.tokens.codes = codes;
  settings.caches.mean = Tensor::zeros({kRows, kKvHeads, kCodes, kValueSize}, type);
  settings.caches.count = Tensor::zeros({kRows, kKvHeads, kCodes}, type);
  settings.caches.tokens.origin = Places::as_rows(places.origin);
  settings.caches.tokens.limit = Places::as_rows(places.limit);
  settings.caches.reduction = form.reduction;
  settings.block = form.block;
  settings.through_cache = form.through_cache;
  return settings;
}

struct Leaves {
  std::map<std::string, Variable> of;
  Tensor codebook;
  Tensor mask = Tensor::from(std::vector<uint8_t>(static_cast<size_t>(kRows * kTokens), 1), {kRows * kTokens});

  Leaves(const Values& in, DType type) {
    for (const auto& [name, value] : in) of[name] = Variable::leaf(clone(converted(value, type)));
    codebook = of.at("codebook").value();
  }
  VqAttentionVariables variables(const Variable& keys) const {
    VqAttentionVariables x;
    x.keys.q = of.at("q");
    x.keys.k = keys;
    x.keys.v = of.at("v");
    x.keys.r = of.at("r");
    x.keys.u = of.at("u");
    x.keys.v_bias = of.at("v_bias");
    x.codebook = codebook;
    return x;
  }
};

Values block_form(const Values& in, const Form& form, DType type) {
  const Leaves leaves(in, type);
  Tape tape;
  const Quantized keys = quantize(tape, leaves.of.at("k"), leaves.codebook, leaves.mask, true);
  const VqAttentionResult result = vq_attention(tape, leaves.variables(keys.keys),
                                                settings_of(Places(0, kTokens, form.block), form, keys.codes, type));
  Values found{{"out", result.out.value()}, {"codes", keys.codes}};
  tape.backward(result.out, leaves.of.at("dout").value());
  for (const char* name : {"q", "k", "v", "r", "u", "v_bias"}) found[name] = leaves.of.at(name).gradient()->value();
  return found;
}

// Every query attends to every token of its document so far. Keys that are older than the window of the query's block
// are constants; so, without gradients through caches, are keys and values before the block.
Values dense(const Values& in, const Tensor& codes, const Form& form) {
  const auto value = [&](const char* name) { return in.at(name).data<double>(); };
  Values found;
  for (const char* name : {"q", "k", "v", "r", "u", "v_bias"})
    found[name] = Tensor::zeros(in.at(name).shape(), DType::f64);
  found["out"] = Tensor::zeros(in.at("dout").shape(), DType::f64);
  const auto gradient = [&](const char* name) { return found.at(name).data<double>(); };
  for (int64_t line = 0; line < kRows * kTokens * kHeads; ++line) {
    const int64_t h = line % kHeads, i = line / kHeads % kTokens, row = line / kHeads / kTokens;
    const int64_t kv = h / (kHeads / kKvHeads);
    const int64_t start = i / form.block * form.block;
    const auto key_at = [&](int64_t j) { return (row * kTokens + j) * kKvHeads + kv; };
    const auto codeword = [&](int64_t j) {
      return value("codebook") + (kv * kCodes + codes.data<int32_t>()[key_at(j)]) * kSize;
    };
    const auto term = [&](int64_t j) { return i - j > kWindow ? -1 : ((kWindow - (i - j)) * kHeads + h) * kSize; };
    std::vector<double> p;
    double sum = 0;
    for (int64_t j = document_of(row, i); j <= i; ++j) {
      double logit = 0;
      for (int64_t d = 0; d < kSize; ++d) {
        const double q = value("q")[line * kSize + d];
        logit += (q + value("u")[h * kSize + d]) * codeword(j)[d];
        if (term(j) >= 0) logit += (q + value("v_bias")[h * kSize + d]) * value("r")[term(j) + d];
      }
      p.push_back(std::exp(kScale * logit));
      sum += p.back();
    }
    const double* dout = value("dout") + line * kValueSize;
    double* const out = gradient("out") + line * kValueSize;
    double delta = 0;
    for (size_t n = 0; n < p.size(); ++n) {
      p[n] /= sum;
      const int64_t j = document_of(row, i) + static_cast<int64_t>(n);
      for (int64_t d = 0; d < kValueSize; ++d) {
        out[d] += p[n] * value("v")[key_at(j) * kValueSize + d];
        delta += dout[d] * p[n] * value("v")[key_at(j) * kValueSize + d];
      }
    }
    for (size_t n = 0; n < p.size(); ++n) {
      const int64_t j = document_of(row, i) + static_cast<int64_t>(n);
      const bool own = j >= start;
      double dp = 0;
      for (int64_t d = 0; d < kValueSize; ++d) {
        dp += dout[d] * value("v")[key_at(j) * kValueSize + d];
        if (own || form.through_cache) gradient("v")[key_at(j) * kValueSize + d] += p[n] * dout[d];
      }
      const double ds = kScale * p[n] * (dp - delta);
      for (int64_t d = 0; d < kSize; ++d) {
        const double q = value("q")[line * kSize + d];
        const double u = value("u")[h * kSize + d];
        gradient("q")[line * kSize + d] += ds * codeword(j)[d];
        gradient("u")[h * kSize + d] += ds * codeword(j)[d];
        if (own || (form.through_cache && j >= start - kWindow)) gradient("k")[key_at(j) * kSize + d] += ds * (q + u);
        if (term(j) < 0) continue;
        gradient("q")[line * kSize + d] += ds * value("r")[term(j) + d];
        gradient("v_bias")[h * kSize + d] += ds * value("r")[term(j) + d];
        gradient("r")[term(j) + d] += ds * (q + value("v_bias")[h * kSize + d]);
      }
    }
  }
  return found;
}

void expect_equal(const Values& got, const Values& expected, DType type) {
  for (const auto& [name, value] : expected) {
    EXPECT_LE(relative_error(got.at(name), value), type == DType::f64 ? 1e-12 : 2e-6) << name << " " << name_of(type);
  }
}

TEST(VqAttention, EqualsAttentionToEveryToken) {
  const Values in = inputs();
  // Blocks of the documents' common measure, of tokens, and longer than the rows: those with a boundary inside a block
  // would need windows that reach further.
  for (const int64_t block : {1, 2, 4, 8}) {
    for (const bool through_cache : {true, false}) {
      for (const ops::CodeReduction reduction :
           {ops::CodeReduction::serial, ops::CodeReduction::matmul, ops::CodeReduction::scan}) {
        const Form form{block, reduction, through_cache};
        SCOPED_TRACE("blocks of " + std::to_string(block) + (through_cache ? "" : ", constant caches"));
        for (const DType type : {DType::f64, DType::f32}) {
          const Values got = block_form(in, form, type);
          expect_equal(got, dense(in, got.at("codes"), form), type);
        }
      }
    }
  }
}

// The same in two subsequences: caches and the window are carried as a layer carries them.
TEST(VqAttention, CarriesOn) {
  const Values in = inputs();
  for (const DType type : {DType::f64, DType::f32}) {
    const Values whole = block_form(in, {}, type);
    const Leaves all(in, type);
    Tape tape(false);
    const Quantized keys = quantize(tape, all.of.at("k"), all.codebook, all.mask, true);
    const auto cut = [&](const Tensor& tensor, int64_t begin, int64_t end) {
      const Tensor view = tensor.slice(1, begin, end);
      const Tensor copy = Tensor::empty_like(view);
      ops::copy(copy, view);
      return copy;
    };
    Tensor mean;
    Tensor count;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 8}, {8, 12}, {12, kTokens}}) {
      VqAttentionVariables x = all.variables(Variable::constant(cut(keys.keys.value(), begin, end)));
      x.keys.q = Variable::constant(cut(all.of.at("q").value(), begin, end));
      x.keys.v = Variable::constant(cut(all.of.at("v").value(), begin, end));
      VqAttentionSettings settings = settings_of(Places(begin, end, 4), {}, cut(keys.codes, begin, end), type);
      if (begin > 0) {
        settings.caches.mean = mean;
        settings.caches.count = count;
        // A ring with room to spare, whose newest entry lies in slot 1.
        const int64_t slots = kWindow + 2;
        std::vector<Tensor> rings;
        for (const Tensor& tensor : {keys.keys.value(), all.of.at("v").value(), keys.codes}) {
          Shape shape = tensor.shape();
          shape[1] = slots;
          const Tensor ring = Tensor::zeros(shape, tensor.dtype());
          for (int64_t age = 1; age <= kWindow; ++age) {
            const int64_t slot = (2 - age + slots) % slots;
            ops::copy(ring.slice(1, slot, slot + 1), tensor.slice(1, begin - age, begin - age + 1));
          }
          rings.push_back(ring);
        }
        x.keys.cache_k = Variable::constant(rings[0]);
        x.keys.cache_v = Variable::constant(rings[1]);
        settings.caches.tokens.window_codes = rings[2];
        settings.attention.cache_head = Tensor::from(std::vector<int32_t>(kRows, 2), {kRows});
        // A document that began with this part has not carried anything.
        for (int64_t r = 0; r < kRows; ++r) {
          if (document_of(r, begin) < begin) continue;
          settings.caches.mean.select(0, r).zero();
          settings.caches.count.select(0, r).zero();
        }
      }
      const VqAttentionResult result = vq_attention(tape, x, settings);
      EXPECT_LE(relative_error(result.out.value(), cut(whole.at("out"), begin, end)),
                type == DType::f64 ? 1e-13 : 1e-6);
      mean = result.mean;
      count = result.count;
    }
  }
}

// Without a codebook it is attention to the window.
TEST(VqAttention, WithoutACacheIsAttentionToTheWindow) {
  const Values in = inputs();
  const Leaves leaves(in, DType::f64);
  Tape tape;
  VqAttentionVariables x = leaves.variables(leaves.of.at("k"));
  x.codebook = Tensor();
  const VqAttentionSettings settings = settings_of(Places(0, kTokens, 4), {}, {}, DType::f64);
  const VqAttentionResult result = vq_attention(tape, x, settings);
  EXPECT_FALSE(result.mean.defined());
  ops::AttentionInputs window = settings.attention;
  window.terms_end = true;
  EXPECT_TRUE(same_bits(attention(tape, x.keys, window).value(), result.out.value()));
}

TEST(VqAttention, ConstantCachesNeedTheFirstKeyOfEachBlock) {
  const Values in = inputs();
  const Leaves leaves(in, DType::f64);
  Tape tape;
  VqAttentionSettings settings = settings_of(Places(0, kTokens, 4), {.through_cache = false}, {}, DType::f64);
  settings.first_in_block = Tensor();
  EXPECT_ANY_THROW(vq_attention(tape, leaves.variables(leaves.of.at("k")), settings));
}

TEST(Quantize, KeysAreCodewordsAndOnlyUnmaskedErrorsCount) {
  const Values in = inputs();
  const Leaves leaves(in, DType::f32);
  const Tensor mask = clone(leaves.mask);
  std::fill_n(mask.data<uint8_t>(), kTokens, 0);
  Tape tape;
  const Quantized found = quantize(tape, leaves.of.at("k"), leaves.codebook, mask, false);
  EXPECT_FALSE(found.keys.needs_gradient());
  const float* key = found.keys.value().data<float>();
  double error = 0;
  for (int64_t n = 0; n < kRows * kTokens * kKvHeads; ++n) {
    const int64_t s = n % kKvHeads * kCodes + found.codes.data<int32_t>()[n];
    for (int64_t d = 0; d < kSize; ++d) {
      const float codeword = leaves.codebook.data<float>()[s * kSize + d];
      EXPECT_EQ(key[n * kSize + d], codeword);
      const double difference = leaves.of.at("k").value().data<float>()[n * kSize + d] - codeword;
      if (n >= kTokens * kKvHeads) error += difference * difference;
    }
  }
  EXPECT_NEAR(found.error.value().data<double>()[0], error, 1e-5 * error);
}

}  // namespace
}  // namespace quire::test
