// Times one layer, forward and backward with its projections, on one thread: the gated attention unit of
// Transformer-VQ with one head, or with attention to a window or to all earlier tokens in the place of the cache.
//   bench_vq vq|window|full TOKENS REPEATS [profile]
// Prints one JSON object.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/vq.h"
#include "core/random.h"
#include "kernels/backend.h"
#include "kernels/position.h"

namespace {

using quire::DType;
using quire::Tensor;
using quire::Variable;

constexpr int64_t kWidth = 256;
constexpr int64_t kSize = 128;
constexpr int64_t kValueSize = 512;
constexpr int64_t kCodes = 512;
constexpr int64_t kBlock = 512;
constexpr int64_t kWindow = 512;
constexpr double kEps = 1e-6;

Tensor normal(const quire::Shape& shape, double std, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = quire::philox(quire::RandomKey::of(1, stream), 0, 0, 0, static_cast<uint32_t>(i));
    const double radius = std::sqrt(-2 * std::log((bits[0] + 1.0) * 0x1p-32));
    values[i] = static_cast<float>(std * radius * std::cos(6.283185307179586 * bits[1] * 0x1p-32));
  }
  return Tensor::from(values, shape);
}

template <typename Function>
Tensor integers(int64_t count, Function&& function) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(function(i)));
  return Tensor::from(values, {1, count});
}

class Layer {
 public:
  Layer(std::string form, int64_t tokens) : form_(std::move(form)), tokens_(tokens) {
    const auto matrix = [](int64_t out, int64_t in, uint32_t stream) {
      return Variable::leaf(normal({out, in}, 1 / std::sqrt(static_cast<double>(in)), stream));
    };
    x_ = Variable::leaf(normal({1, tokens, kWidth}, 1, 1));
    dy_ = normal({1, tokens, kWidth}, 1, 2);
    query_ = matrix(kSize, kWidth, 3);
    key_ = matrix(kSize, kWidth, 4);
    value_ = matrix(kValueSize, kWidth, 5);
    gate_ = matrix(kValueSize, kWidth, 6);
    out_ = matrix(kWidth, kValueSize, 7);
    relative_ = matrix(kSize, kWidth, 8);
    u_ = Variable::leaf(normal({1, kSize}, 0.1, 9));
    v_bias_ = Variable::leaf(normal({1, kSize}, 0.1, 10));
    gain_ = Variable::leaf(Tensor::from(std::vector<float>(kWidth, 1), {kWidth}));
    const auto scale = static_cast<float>(std::pow(static_cast<double>(kSize), -0.25));
    heads_gain_ = Variable::constant(Tensor::from(std::vector<float>(kSize, scale), {kSize}));
    mask_ = Tensor::from(std::vector<uint8_t>(static_cast<size_t>(tokens), 1), {tokens});
    angles_ = Tensor::empty({form_ == "full" ? tokens : kWindow + 1, kWidth}, DType::f32);
    quire::ops::sinusoid(angles_, 0, 1e5);
    // Codewords are keys from all over the row.
    quire::Tape tape(false);
    const Tensor keys = normalised(tape, key_, normed(tape)).value();
    codebook_ = Tensor::empty({1, kCodes, kSize}, DType::f32);
    for (int64_t s = 0; s < kCodes; ++s) {
      const float* from = keys.data<float>() + s * tokens / kCodes * kSize;
      std::copy(from, from + kSize, codebook_.data<float>() + s * kSize);
    }
  }

  // Forward and backward; seconds.
  double step() {
    for (Variable* parameter : {&x_, &query_, &key_, &value_, &gate_, &out_, &relative_, &u_, &v_bias_, &gain_}) {
      parameter->gradient()->take();
    }
    const auto begin = std::chrono::steady_clock::now();
    quire::Tape tape;
    const Variable z = normed(tape);
    quire::AttentionVariables x;
    x.q = normalised(tape, query_, z);
    x.k = normalised(tape, key_, z);
    x.v = reshape(tape, linear_activation(tape, z, value_, {}, quire::ops::Activation::silu),
                  {1, tokens_, 1, kValueSize});
    const Variable r = linear(tape, Variable::constant(angles_), relative_);
    x.r = reshape(tape, scale(tape, r, std::pow(static_cast<double>(kSize), -0.25)), {angles_.dim(0), 1, kSize});
    x.u = u_;
    x.v_bias = v_bias_;
    const Variable mixed = form_ == "vq" ? quantised(tape, x) : attention(tape, x, settings());
    const Variable gated = swiglu(tape, linear(tape, z, gate_), reshape(tape, mixed, {1, tokens_, kValueSize}));
    const Variable y = add(tape, x_, linear(tape, gated, out_));
    tape.backward(y, dy_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  Variable normed(quire::Tape& tape) const { return rms_norm(tape, x_, gain_, kEps); }
  Variable normalised(quire::Tape& tape, const Variable& weight, const Variable& z) const {
    return rms_norm(tape, reshape(tape, linear(tape, z, weight), {1, tokens_, 1, kSize}), heads_gain_, kEps);
  }

  quire::ops::AttentionInputs settings() const {
    quire::ops::AttentionInputs in;
    in.first_visible = integers(tokens_, [&](int64_t i) -> int64_t {
      if (form_ == "full") return 0;
      const int64_t nearest = form_ == "vq" ? i / kBlock * kBlock : i;
      return std::max<int64_t>(0, nearest - kWindow);
    });
    return in;
  }

  Variable quantised(quire::Tape& tape, const quire::AttentionVariables& keys) const {
    const quire::Quantized found = quantize(tape, keys.k, codebook_, mask_, true);
    quire::VqAttentionVariables x{keys, codebook_};
    x.keys.k = found.keys;
    quire::VqAttentionSettings s;
    s.attention = settings();
    s.block = kBlock;
    s.caches.tokens.codes = found.codes;
    s.caches.mean = Tensor::zeros({1, 1, kCodes, kValueSize}, DType::f32);
    s.caches.count = Tensor::zeros({1, 1, kCodes}, DType::f32);
    const int64_t caches = (tokens_ + kBlock - 1) / kBlock + 1;
    s.caches.tokens.origin = integers(caches, [](int64_t) { return 0; });
    s.caches.tokens.limit = integers(caches, [](int64_t b) { return std::max<int64_t>(0, b * kBlock - kWindow); });
    // These are the inputs of the codebook's moving averages and of the commitment loss.
    const Tensor counts = Tensor::zeros({1, kCodes}, DType::f32);
    const Tensor sums = Tensor::zeros({1, kCodes, kSize}, DType::f32);
    const quire::Shape vectors{tokens_, 1, kSize};
    quire::ops::code_statistics(counts, sums, keys.k.value().reshape(vectors), found.codes.reshape({tokens_, 1}),
                                mask_);
    found.error.gradient()->add(Tensor::from(std::vector<double>{1e-4 / static_cast<double>(tokens_)}, {1}));
    return vq_attention(tape, x, s).out;
  }

  std::string form_;
  int64_t tokens_;
  Variable x_, query_, key_, value_, gate_, out_, relative_, u_, v_bias_, gain_, heads_gain_;
  Tensor dy_, mask_, angles_, codebook_;
};

void print_profile(int64_t tokens, double steps) {
  std::vector<quire::OpStats> all;
  for (const quire::OpBase* op : quire::OpBase::all()) {
    if (op->stats().calls > 0) all.push_back(op->stats());
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  for (const quire::OpStats& op : all) {
    std::fprintf(stderr, "%-26s %8.2f us/token %8.1f GFLOP/s %8.1f GB/s\n", op.name.c_str(),
                 op.seconds / steps / static_cast<double>(tokens) * 1e6, op.flops / op.seconds / 1e9,
                 op.bytes / op.seconds / 1e9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string form = argc > 1 ? argv[1] : "";
  const int64_t tokens = argc > 2 ? std::atoll(argv[2]) : 0;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 0;
  if ((form != "vq" && form != "window" && form != "full") || tokens < kCodes || repeats < 1) {
    std::fprintf(stderr, "usage: bench_vq vq|window|full TOKENS REPEATS [profile], at least %d tokens\n",
                 static_cast<int>(kCodes));
    return 2;
  }
  quire::load_backends();
  Layer layer(form, tokens);
  layer.step();
  const bool profile = argc > 4;
  quire::OpBase::set_timing(profile);
  std::string seconds;
  for (int i = 0; i < repeats; ++i) {
    seconds += (i == 0 ? "" : ", ") + std::to_string(layer.step());
  }
  if (profile) print_profile(tokens, repeats);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"form\": \"%s\", \"tokens\": %lld, \"seconds\": [%s], \"resident_mb\": %.0f}\n", form.c_str(),
              static_cast<long long>(tokens), seconds.c_str(), static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}
