// Times attention alone, forward and backward (attention.py runs it beside PyTorch). Prints one JSON object;
// floating-point operations are those of visible pairs, 2 (D + Dv) a pair forward and 2.5 times as many backward, as is
// customary.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>

#include "experiments/gpu/timing.h"
#include "kernels/attention.h"

namespace {

using namespace quire;

struct Options {
  std::string device = "cuda", type = "bf16", terms = "none";
  int64_t rows = 1, queries = 8192, heads = 16, kv_heads = 0, size = 128, slots = 0, window = 0;
  int repeats = 10, calls = 1;
};

class Attention {
 public:
  Attention(const Options& o, DType dtype, Device device) : options_(o) {
    const int64_t kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
    in_.q = uniform({o.rows, o.queries, o.heads, o.size}, dtype, device, 1);
    in_.k = uniform({o.rows, o.queries, kv_heads, o.size}, dtype, device, 2);
    in_.v = uniform({o.rows, o.queries, kv_heads, o.size}, dtype, device, 3);
    if (o.slots > 0) {
      in_.cache_k = uniform({o.rows, o.slots, kv_heads, o.size}, dtype, device, 4);
      in_.cache_v = uniform({o.rows, o.slots, kv_heads, o.size}, dtype, device, 5);
      in_.cache_head = Tensor::from(std::vector<int32_t>(static_cast<size_t>(o.rows), 0), {o.rows}).to(device);
    }
    std::vector<int32_t> first;
    for (int64_t row = 0; row < o.rows; ++row) {
      for (int64_t query = 0; query < o.queries; ++query) {
        const int64_t from = o.window > 0 ? std::max(query - o.window + 1, -o.slots) : -o.slots;
        first.push_back(static_cast<int32_t>(from));
        pairs_ += static_cast<double>(query - from + 1) * static_cast<double>(o.heads);
      }
    }
    in_.first_visible = Tensor::from(first, {o.rows, o.queries}).to(device);
    const int64_t entries = o.window > 0 ? std::min(o.window, o.queries + o.slots) : o.queries + o.slots;
    const DType wide = wide_type(dtype);
    if (o.terms == "bias") in_.bias = uniform({o.heads, entries}, wide, device, 6);
    if (o.terms == "relative") {
      in_.r = uniform({entries, o.heads, o.size}, dtype, device, 7);
      in_.u = uniform({o.heads, o.size}, wide, device, 8);
      in_.v_bias = uniform({o.heads, o.size}, wide, device, 9);
    }
    in_.scale = 1 / std::sqrt(static_cast<double>(o.size));
    out_ = Tensor::empty_like(in_.q);
    dout_ = uniform(in_.q.shape(), dtype, device, 10);
    lse_ = Tensor::empty({o.rows, o.heads, o.queries}, wide, device);
    gradients_ = {
        Tensor::empty_like(in_.q), Tensor::empty_like(in_.k), Tensor::empty_like(in_.v), {}, {}, {}, {}, {}, {}};
    if (in_.bias.defined()) gradients_.dbias = Tensor::empty_like(in_.bias);
    if (in_.r.defined()) {
      gradients_.dr = Tensor::empty_like(in_.r);
      gradients_.du = Tensor::empty_like(in_.u);
      gradients_.dv_bias = Tensor::empty_like(in_.v_bias);
    }
  }

  void forward() const { ops::attention(out_, lse_, in_); }
  void backward() const { ops::attention_backward(gradients_, dout_, out_, lse_, in_); }
  double flops() const { return pairs_ * 4 * static_cast<double>(options_.size); }

 private:
  Options options_;
  ops::AttentionInputs in_;
  Tensor out_, dout_, lse_;
  ops::AttentionGradients gradients_;
  double pairs_ = 0;
};

void bench(const Options& options) {
  const Device device = device_named(options.device);
  const DType dtype = options.type == "bf16" ? DType::bf16 : DType::f32;
  const Attention attention(options, dtype, device);
  const double forward = timed(options.repeats, options.calls, device, [&] { attention.forward(); });
  const double backward = timed(options.repeats, options.calls, device, [&] { attention.backward(); });
  std::cout << nlohmann::json{{"gpu", gpu_of(device)},
                              {"forward_ms", forward * 1e3},
                              {"backward_ms", backward * 1e3},
                              {"forward_tflops", attention.flops() / forward * 1e-12},
                              {"backward_tflops", 2.5 * attention.flops() / backward * 1e-12}}
                   .dump()
            << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times attention alone, forward and backward.", "bench_attention");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--type", options.type)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--terms", options.terms, "position terms")->check(CLI::IsMember({"none", "bias", "relative"}));
  app.add_option("--rows", options.rows)->check(CLI::Range(1, 1 << 24));
  app.add_option("--queries", options.queries)->check(CLI::Range(1, 1 << 24));
  app.add_option("--heads", options.heads)->check(CLI::Range(1, 1 << 24));
  app.add_option("--kv-heads", options.kv_heads, "0: as many as heads")->check(CLI::Range(0, 1 << 24));
  app.add_option("--size", options.size, "features of a head")->check(CLI::Range(1, 1 << 24));
  app.add_option("--slots", options.slots, "keys of a cache")->check(CLI::Range(0, 1 << 24));
  app.add_option("--window", options.window, "0: all earlier tokens")->check(CLI::Range(0, 1 << 24));
  app.add_option("--repeats", options.repeats)->check(CLI::Range(1, 1 << 24));
  app.add_option("--calls", options.calls, "timed at once")->check(CLI::Range(1, 1 << 24));
  CLI11_PARSE(app, argc, argv);
  try {
    bench(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bench_attention: error: " << error.what() << "\n";
    return 1;
  }
}
