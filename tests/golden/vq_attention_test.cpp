// Golden vq_attention: attention over quantised keys in block form, with carried windows and caches. The cases have a
// bias for every query and distance: as many features are appended to queries, and the table of relative positions
// picks the one of its distance. Keys and codewords are zero there.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/vq.h"
#include "kernels/vq_sizes.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class Attention {
 public:
  explicit Attention(GoldenCase& golden)
      : golden_(golden),
        rows_(golden.number("batch")),
        tokens_(golden.number("seq_len")),
        block_(golden.number("block_len")),
        window_(golden.number("mem_len")),
        heads_(golden.number("n_head")),
        kv_heads_(golden.number("n_kv_head")),
        size_(golden.number("d_k")),
        bias_(golden.flag("has_bias") ? window_ + 1 : 0),
        lengths_(golden.get("in/state_len").to_vector<int32_t>()) {}

  void run() {
    const Variable q =
        Variable::leaf(bias_ > 0 ? joined(golden_.get("in/q"), golden_.get("in/bias"), 3) : golden_.get("in/q"));
    const Variable k = Variable::leaf(widened(golden_.get("in/k")));
    const Variable v = Variable::leaf(golden_.get("in/v"));
    const Tensor codebook = widened(golden_.get("in/codebook"));
    const bool cached = golden_.flag("agg_cache");
    Tape tape;
    const std::vector<uint8_t> ones(static_cast<size_t>(rows_ * tokens_), 1);
    const Quantized keys = quantize(tape, k, codebook, Tensor::from(ones, {rows_ * tokens_}, test_device()), true);
    golden_.expect("out/z", keys.codes);
    golden_.expect("out/k_hat", narrowed(keys.keys.value()));

    VqAttentionVariables x;
    x.keys.q = q;
    x.keys.k = keys.keys;
    x.keys.v = v;
    x.keys.cache_k = Variable::constant(widened(golden_.get("in/state_k_hat")));
    x.keys.cache_v = Variable::constant(golden_.get("in/state_v"));
    if (bias_ > 0) add_table(x.keys);
    if (cached) x.codebook = codebook;
    VqAttentionSettings settings;
    settings.attention.cache_head = zeros({rows_}, DType::i32);
    settings.attention.first_visible =
        per_query([&](int64_t row, int64_t i) { return std::max((cached ? start_of(i) : i) - window_, before(row)); });
    settings.first_in_block = per_query([&](int64_t row, int64_t i) {
      return std::max({(cached ? start_of(i) : i) - window_, before(row), start_of(i)});
    });
    settings.caches = caches(keys.codes, v.value());
    settings.block = block_;
    settings.through_cache = golden_.flag("grad_thru_cache");
    const VqAttentionResult result = vq_attention(tape, x, settings);

    Variable out = result.out;
    Variable gate;
    if (golden_.flag("gated")) {
      gate = Variable::leaf(golden_.get("in/g"));
      out = multiply(tape, out, gate);
    }
    golden_.expect("out/o", out.value());
    tape.backward({{weighted_sum(tape, out, golden_.get("grad_out/o")), 1.0}});
    const Tensor dq = q.gradient()->value();
    golden_.expect("grad/q", narrowed(dq));
    if (bias_ > 0) golden_.expect("grad/bias", part(dq, 3, size_, size_ + bias_));
    golden_.expect("grad/k", narrowed(k.gradient()->value()));
    golden_.expect("grad/v", v.gradient()->value());
    if (gate.defined()) golden_.expect("grad/g", gate.gradient()->value());

    expect_caches(settings.caches, result);
    expect_window(keys, v.value());
  }

 private:
  int64_t start_of(int64_t query) const { return query / block_ * block_; }
  int64_t before(int64_t row) const { return -lengths_[static_cast<size_t>(row)]; }

  // With zeros for the features of the bias, and without them.
  Tensor widened(const Tensor& keys) const {
    if (bias_ == 0) return keys;
    Shape shape = keys.shape();
    shape[-1] = bias_;
    return joined(keys, zeros(shape, keys.dtype()), keys.rank() - 1);
  }
  Tensor narrowed(const Tensor& keys) const { return part(keys, 3, 0, size_); }

  // Entry n belongs to distance M - n.
  void add_table(AttentionVariables& x) const {
    const int64_t width = size_ + bias_;
    std::vector<double> table(static_cast<size_t>(bias_ * heads_ * width), 0.0);
    for (int64_t n = 0; n < bias_; ++n) {
      for (int64_t h = 0; h < heads_; ++h) {
        table[static_cast<size_t>((n * heads_ + h) * width + size_ + window_ - n)] = 1;
      }
    }
    const Tensor units = Tensor::from(table, {bias_, heads_, width});
    x.r = Variable::constant(converted(units, golden_.dtype()).to(test_device()));
    x.u = Variable::constant(zeros({heads_, width}, golden_.dtype()));
    x.v_bias = x.u;
  }

  template <typename Function>
  Tensor per_query(Function&& function) const {
    std::vector<int32_t> values;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t i = 0; i < tokens_; ++i) values.push_back(static_cast<int32_t>(function(r, i)));
    }
    return Tensor::from(values, {rows_, tokens_}, test_device());
  }

  // The oldest tokens leave the window at the end of every block.
  ops::CodeCacheInputs caches(const Tensor& codes, const Tensor& v) const {
    std::vector<int32_t> origin;
    std::vector<int32_t> limit;
    const int64_t count = tokens_ / block_ + 1;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t b = 0; b < count; ++b) {
        origin.push_back(static_cast<int32_t>(before(r)));
        limit.push_back(static_cast<int32_t>(b * block_ - window_));
      }
    }
    ops::CodeCacheInputs in;
    in.v = v;
    in.tokens.codes = codes;
    in.window_v = golden_.get("in/state_v");
    in.tokens.window_codes = golden_.get("in/state_z");
    in.tokens.window_head = zeros({rows_}, DType::i32);
    in.mean = golden_.get("in/state_mean");
    in.count = golden_.get("in/state_count");
    in.tokens.origin = Tensor::from(origin, {rows_, count}, test_device());
    in.tokens.limit = Tensor::from(limit, {rows_, count}, test_device());
    return in;
  }

  // Caches are kept up without being read, too.
  void expect_caches(ops::CodeCacheInputs in, const VqAttentionResult& result) {
    const int64_t blocks = tokens_ / block_;
    const Shape shape = in.mean.shape();
    const Tensor means = zeros({rows_, blocks, shape[1], shape[2], shape[3]}, golden_.dtype());
    const Tensor last = zeros(shape, golden_.dtype());
    const Tensor counts = zeros({rows_, blocks + 1, shape[1], shape[2]}, golden_.dtype());
    const ops::TokensByCode by_code = empty_tokens_by_code(in.tokens, shape[2]);
    ops::sort_by_code(by_code, in.tokens);
    for (const ops::CodeReduction reduction :
         {ops::CodeReduction::serial, ops::CodeReduction::matmul, ops::CodeReduction::scan}) {
      in.reduction = reduction;
      ops::code_caches(means, last, counts, in, by_code);
      golden_.expect("out/cache_mean", means);
      golden_.expect("out/cache_count", part(counts, 1, 0, blocks));
      golden_.expect("out/state_mean", last);
      golden_.expect("out/state_count", part(counts, 1, blocks, blocks + 1).reshape(in.count.shape()));
    }
    if (!result.mean.defined()) return;
    golden_.expect("out/state_mean", result.mean);
    golden_.expect("out/state_count", result.count);
  }

  // The newest tokens of what was carried and the subsequence.
  void expect_window(const Quantized& keys, const Tensor& v) {
    const auto newest = [&](const Tensor& carried, const Tensor& tokens) {
      return part(joined(carried, tokens, 1), 1, tokens_, tokens_ + window_);
    };
    golden_.expect("out/state_k_hat", newest(golden_.get("in/state_k_hat"), narrowed(keys.keys.value())));
    golden_.expect("out/state_v", newest(golden_.get("in/state_v"), v));
    golden_.expect("out/state_z", newest(golden_.get("in/state_z"), keys.codes));
    std::vector<int32_t> lengths;
    for (const int32_t length : lengths_) {
      lengths.push_back(static_cast<int32_t>(std::min<int64_t>(window_, length + tokens_)));
    }
    golden_.expect("out/state_len", Tensor::from(lengths, {rows_}));
  }

  GoldenCase& golden_;
  int64_t rows_, tokens_, block_, window_, heads_, kv_heads_, size_;
  int64_t bias_;  // features of the bias: M + 1 or none
  std::vector<int32_t> lengths_;
};

TEST(GoldenVqAttention, AllCases) {
  GoldenFile(golden_folder(), "vq_attention").for_each_case([](GoldenCase& golden) { Attention(golden).run(); });
}

}  // namespace
}  // namespace quire::test
