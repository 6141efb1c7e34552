// Golden xl_kv_cache: attention over consecutive segments, keys and values carried by StatePool logs.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "layers/pass/visibility.h"
#include "layers/state/state_pool.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/hand_batch.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class CachedAttention {
 public:
  explicit CachedAttention(GoldenCase& golden)
      : golden_(golden),
        rows_(golden.number("batch")),
        tokens_(golden.number("seg_len")),
        heads_(golden.number("heads")),
        window_(golden.number("window")),
        leaves_(golden.leaves()) {
    StateLayout layout;
    const Shape entry{heads_, golden.number("d_head")};
    const bool filled = !golden.flag("mask_empty_cache");
    const LogGroupId cache = layout.add_log_group("cache", window_, {.filled_with_zeros = filled});
    keys_ = layout.add_log(cache, "keys", entry);
    values_ = layout.add_log(cache, "values", entry);
    pool_ = std::make_unique<StatePool>(layout, rows_, tokens_, golden.dtype(), test_device());
  }

  void run() {
    const int64_t segments = golden_.number("n_seg");
    if (!golden_.flag("qk_norm")) golden_.unused({"qk_norm_eps"});
    std::vector<int32_t> lengths;
    for (int64_t s = 0; s < segments; ++s) {
      step(s, s + 1 == segments);
      for (int64_t row = 0; row < rows_; ++row) {
        // A full log does not tell how much was written.
        lengths.push_back(static_cast<int32_t>(std::min(window_, view().written(keys_.group, row))));
      }
    }
    golden_.expect("out/o", out_);
    golden_.expect("out/cache_k", view().gather(keys_));
    golden_.expect("out/cache_v", view().gather(values_));
    golden_.expect("out/cache_len", Tensor::from(lengths, {segments, rows_}));
    for (const auto& [name, gradient] : gradients_) golden_.expect("grad/" + name, gradient);
    for (const char* name : {"bias_table", "attn_scale"}) {
      if (leaves_.contains(name)) golden_.expect_gradients({{name, leaves_.at(name)}});
    }
  }

 private:
  StateView view() { return pool_->view(0, rows_); }

  void step(int64_t s, bool last) {
    std::vector<uint8_t> starts;
    const std::vector<int32_t> flags = golden_.get("in/start_of_doc").to_vector<int32_t>();
    for (int64_t r = 0; r < rows_; ++r) {
      starts.push_back(static_cast<uint8_t>(flags[static_cast<size_t>(s * rows_ + r)]));
    }
    const Batch batch = one_segment(rows_, tokens_, starts);
    pool_->begin_step(batch);
    Tape tape;
    std::map<std::string, Variable> in;
    for (const char* name : {"q", "k", "v"}) in[name] = Variable::leaf(leaves_.at(name).value().select(0, s));

    const bool normalized = golden_.flag("qk_norm");
    AttentionVariables x{in["q"], in["k"], in["v"], {}, {}, {}, {}, {}, {}};
    if (normalized) {
      x.q = l2_normalize(tape, x.q, golden_.real("qk_norm_eps"));
      x.k = l2_normalize(tape, x.k, golden_.real("qk_norm_eps"));
    }
    const Variable key = x.k;
    if (golden_.flag("use_bias")) x.bias = gather_columns(tape, leaves_.at("bias_table"), buckets());
    if (normalized) scale(tape, x);
    x.cache_k = Variable::constant(view().ring(keys_));
    x.cache_v = Variable::constant(view().ring(values_));
    ops::AttentionInputs settings;
    settings.cache_head = view().ring_head(keys_.group);
    settings.first_visible =
        Tensor::from(first_visible(batch, segments_of(batch), view().initial_lengths(keys_.group), window_),
                     {rows_, tokens_}, test_device());
    settings.attend_self = golden_.flag("attend_self");
    settings.scale = golden_.real("scale");
    const Variable out = attention(tape, x, settings);
    if (last) golden_.expect("out/prob_last", probabilities(x, settings, window_));

    view().append(keys_, key.value());
    view().append(values_, x.v.value());
    tape.backward({{weighted_sum(tape, out, golden_.get("grad_out/o").select(0, s)), 1.0}});
    pool_->commit();

    keep(out_, out.value());
    for (const auto& [name, leaf] : in) keep(gradients_[name], leaf.gradient()->value());
  }

  // Buckets of a table by distance that reaches as far as the window.
  Tensor buckets() const {
    std::vector<int32_t> index;
    for (int64_t n = 0; n <= window_; ++n) {
      index.push_back(static_cast<int32_t>(
          t5_bucket(n - window_, golden_.number("num_buckets"), golden_.number("max_distance"), false)));
    }
    return Tensor::from(index, {window_ + 1}, test_device());
  }

  // (q.k + bias) |a_h|
  void scale(Tape& tape, AttentionVariables& x) const {
    const Variable& factor = leaves_.at("attn_scale");
    x.q = scale_heads(tape, x.q, factor);
    if (!x.bias.defined()) return;
    const Variable bias = reshape(tape, x.bias, {1, heads_, window_ + 1});
    x.bias = reshape(tape, scale_heads(tape, bias, factor), {heads_, window_ + 1});
  }

  static void keep(Tensor& all, const Tensor& segment) {
    Shape shape{1, segment.dim(0), segment.dim(1), segment.dim(2), segment.dim(3)};
    all = all.defined() ? joined(all, segment.reshape(shape), 0) : segment.reshape(shape);
  }

  GoldenCase& golden_;
  int64_t rows_, tokens_, heads_, window_;
  std::map<std::string, Variable> leaves_;
  LogId keys_, values_;
  std::unique_ptr<StatePool> pool_;
  Tensor out_;
  std::map<std::string, Tensor> gradients_;
};

TEST(GoldenXlKvCache, Segments) {
  GoldenFile(golden_folder(), "xl_kv_cache").for_each_case("segments", [](GoldenCase& golden) {
    CachedAttention(golden).run();
  });
}

}  // namespace
}  // namespace quire::test
