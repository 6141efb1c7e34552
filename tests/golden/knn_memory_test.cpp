// Golden knn_memory, kinds attn and bucketed_topk: search of a memory, attention to what was found and its three ways
// of joining attention to local keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/knn.h"
#include "autograd/functions/norm.h"
#include "kernels/position.h"
#include "layers/pass/visibility.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class MemoryAttention {
 public:
  explicit MemoryAttention(GoldenCase& golden)
      : golden_(golden),
        rows_(golden.number("batch")),
        tokens_(golden.number("seg_len")),
        heads_(golden.number("heads")),
        window_(golden.number("window")),
        size_(golden.number("mem_size")),
        expected_(golden.number("top_k")),
        in_(golden.leaves()) {}

  void run() {
    const bool normalized = golden_.flag("qk_norm");
    if (normalized) golden_.expect_only("scale", 1);
    if (!normalized) golden_.unused({"qk_norm_eps"});
    if (!golden_.flag("use_bias")) golden_.unused({"num_buckets", "max_distance"});
    Tape tape;
    const auto normal = [&](const Variable& x) {
      return normalized ? l2_normalize(tape, x, golden_.real("qk_norm_eps")) : x;
    };
    const Variable q = normal(in_.at("q"));
    const ops::KnnMemory memory = stored();
    const Tensor index = found(q.value(), memory);
    golden_.expect("out/topk_idx", index);

    // Queries with the scale of their logits: of these softmax alone is left to be taken.
    const Variable scaled =
        normalized ? scale_heads(tape, q, in_.at("attn_scale")) : scale(tape, q, golden_.real("scale"));
    AttentionVariables x = local(tape, scaled, normal(in_.at("k")));
    const ops::AttentionInputs settings = local_settings();
    const std::string combine = golden_.text("combine");
    Variable v_a;
    if (combine == "joint") {
      Tensor share;
      v_a = joint_attention(tape, x, settings, scaled, index, memory, &share);
      expect_joint(x, settings, scaled, index, memory, v_a.value(), share);
    } else {
      Tensor lse;
      const Variable v_m = knn_attention(tape, scaled, index, memory, &lse);
      const Variable v_c = attention(tape, x, settings);
      v_a = combine == "add" ? add(tape, v_m, v_c) : gate_heads(tape, v_m, v_c, in_.at("gate_bias"), {}, {});
      golden_.expect("out/v_m", v_m.value());
      golden_.expect("out/v_c", v_c.value());
      expect_probabilities(scaled.value(), index, memory, lse);
    }
    golden_.expect("out/v_a", v_a.value());
    tape.backward({{weighted_sum(tape, v_a, golden_.get("grad_out/v_a")), 1.0}});
    golden_.expect_gradients(in_);
  }

 private:
  // Written so that it wraps: entry m of a row is in slot m + 1, the last one in slot 0.
  ops::KnnMemory stored() const {
    ops::KnnMemory memory;
    memory.length = golden_.get("in/mem_len");
    const Tensor length = on_device(memory.length, kCpu);
    std::vector<int32_t> head;
    for (int64_t r = 0; r < rows_; ++r) {
      head.push_back(static_cast<int32_t>((length.data<int32_t>()[r] + 1) % size_));
    }
    memory.head = Tensor::from(head, {rows_}, test_device());
    memory.keys = transposed(golden_.get("in/mem_k"));
    memory.values = transposed(golden_.get("in/mem_v"));
    return memory;
  }
  Tensor transposed(const Tensor& entries) const {
    return joined(part(entries, 1, size_ - 1, size_), part(entries, 1, 0, size_ - 1), 1);
  }

  Tensor found(const Tensor& q, const ops::KnnMemory& memory) const {
    const Shape shape{rows_, tokens_, heads_, expected_};
    const Tensor index = zeros(shape, DType::i32);
    ops::knn_search(index, zeros(shape, golden_.dtype()), q, memory, ops::KnnSearch::exact);
    return index;
  }

  // The keys before the segment are those of a full ring, which here get gradients, too.
  AttentionVariables local(Tape& tape, const Variable& q, const Variable& k) const {
    AttentionVariables x{q, {}, {}, {}, {}, {}, {}, {}, {}};
    x.cache_k = rows_of(tape, k, 0, window_);
    x.cache_v = rows_of(tape, in_.at("v"), 0, window_);
    x.k = rows_of(tape, k, window_, window_ + tokens_);
    x.v = rows_of(tape, in_.at("v"), window_, window_ + tokens_);
    if (golden_.flag("use_bias")) {
      x.bias = gather_columns(tape, in_.at("bias_table"), buckets());
      if (golden_.flag("qk_norm")) {
        const Variable bias = reshape(tape, x.bias, {1, heads_, window_ + 1});
        x.bias = reshape(tape, scale_heads(tape, bias, in_.at("attn_scale")), {heads_, window_ + 1});
      }
    }
    return x;
  }

  // Tokens [begin, end) of x.
  static Variable rows_of(Tape& tape, const Variable& x, int64_t begin, int64_t end) {
    return tape.result("rows_of", part(x.value(), 1, begin, end), {&x}, [x, begin, end](const Tensor& dout) {
      const Shape& shape = x.shape();
      const auto gap = [&](int64_t tokens) { return zeros({shape[0], tokens, shape[2], shape[3]}, dout.dtype()); };
      Tensor whole = dout;
      if (begin > 0) whole = joined(gap(begin), whole, 1);
      if (end < shape[1]) whole = joined(whole, gap(shape[1] - end), 1);
      x.gradient()->add(whole);
    });
  }

  ops::AttentionInputs local_settings() const {
    ops::AttentionInputs settings;
    settings.cache_head = zeros({rows_}, DType::i32);
    const std::vector<int64_t> lengths(static_cast<size_t>(rows_), window_);
    const Batch batch = one_segment(rows_, tokens_, std::vector<uint8_t>(static_cast<size_t>(rows_), 0));
    settings.first_visible =
        Tensor::from(first_visible(batch, segments_of(batch), lengths, window_), {rows_, tokens_}, test_device());
    settings.attend_self = golden_.flag("attend_self");
    return settings;
  }

  Tensor buckets() const {
    std::vector<int32_t> index;
    for (int64_t n = 0; n <= window_; ++n) {
      index.push_back(static_cast<int32_t>(
          t5_bucket(n - window_, golden_.number("num_buckets"), golden_.number("max_distance"), false)));
    }
    return Tensor::from(index, {window_ + 1}, test_device());
  }

  // topk_logit and, with the logarithm of the sum [R, H, T], topk_prob.
  void expect_probabilities(const Tensor& scaled, const Tensor& index, const ops::KnnMemory& memory,
                            const Tensor& lse) const {
    const Shape shape = index.shape();
    const Tensor again = zeros(shape, DType::i32);
    const Tensor score = zeros(shape, golden_.dtype());
    // |a_h| and a positive scale leave the choice as it is.
    ops::knn_search(again, score, scaled, memory, ops::KnnSearch::exact);
    const Tensor logits = converted(on_device(score, kCpu), DType::f64);
    const Tensor sums = converted(on_device(lse, kCpu), DType::f64);
    const std::vector<int32_t> entries = index.to_vector<int32_t>();
    const Tensor probability = Tensor::zeros(shape, DType::f64);
    for (int64_t i = 0; i < logits.numel(); ++i) {
      const int64_t line = i / expected_;
      const int64_t at = (line / (tokens_ * heads_) * heads_ + line % heads_) * tokens_ + line / heads_ % tokens_;
      if (entries[static_cast<size_t>(i)] < 0) continue;
      probability.data<double>()[i] = std::exp(logits.data<double>()[i] - sums.data<double>()[at]);
    }
    golden_.expect("out/topk_logit", score);
    golden_.expect("out/topk_prob", converted(probability, golden_.dtype()));
  }

  // Partial sums of one softmax: what attention to each part alone gives, by the share of that part.
  void expect_joint(const AttentionVariables& x, const ops::AttentionInputs& settings, const Variable& scaled,
                    const Tensor& index, const ops::KnnMemory& memory, const Tensor& v_a, const Tensor& share) const {
    Tape none(false);
    Tensor lse;
    const Tensor alone =
        converted(on_device(knn_attention(none, scaled, index, memory, &lse).value(), kCpu), DType::f64);
    const Tensor v_m = clone(alone);
    const Tensor v_c = converted(on_device(attention(none, x, settings).value(), kCpu), DType::f64);
    const Tensor shares = converted(on_device(share, kCpu), DType::f64);
    const Tensor total = converted(on_device(lse, kCpu), DType::f64);
    const int64_t width = v_a.dim(3);
    for (int64_t i = 0; i < v_m.numel(); ++i) {
      const int64_t line = i / width;
      const int64_t at = (line / (tokens_ * heads_) * heads_ + line % heads_) * tokens_ + line / heads_ % tokens_;
      v_m.data<double>()[i] *= shares.data<double>()[at];
      v_c.data<double>()[i] *= 1 - shares.data<double>()[at];
    }
    for (int64_t i = 0; i < total.numel(); ++i) {
      total.data<double>()[i] -= std::log(shares.data<double>()[i]);  // of the whole softmax
    }
    golden_.expect("out/v_m", converted(v_m, golden_.dtype()));
    golden_.expect("out/v_c", converted(v_c, golden_.dtype()));
    expect_probabilities(scaled.value(), index, memory, total);
  }

  GoldenCase& golden_;
  int64_t rows_, tokens_, heads_, window_, size_, expected_;
  std::map<std::string, Variable> in_;
};

TEST(GoldenKnnMemory, Attention) {
  GoldenFile(golden_folder(), "knn_memory").for_each_case("attn", [](GoldenCase& golden) {
    MemoryAttention(golden).run();
  });
}

TEST(GoldenKnnMemory, BucketedSearch) {
  GoldenFile(golden_folder(), "knn_memory").for_each_case("bucketed_topk", [](GoldenCase& golden) {
    ops::KnnMemory memory;
    memory.keys = golden.get("in/mem_k");
    const int64_t size = memory.keys.dim(1);
    const int64_t rows = memory.keys.dim(0);
    memory.head = Tensor::zeros({rows}, DType::i32, test_device());
    memory.length = Tensor::from(std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(size)), {rows},
                                 test_device());
    const Tensor q = golden.get("in/q");
    const Shape shape{rows, q.dim(1), q.dim(2), golden.number("top_k")};
    const Tensor index = Tensor::zeros(shape, DType::i32, test_device());
    const Tensor best = Tensor::zeros(shape, DType::i32, test_device());
    const Tensor score = Tensor::zeros(shape, q.dtype(), test_device());
    ops::knn_search(index, score, q, memory, ops::KnnSearch::bucketed);
    golden.expect("out/idx", index);
    ops::knn_search(best, score, q, memory, ops::KnnSearch::exact);
    const std::vector<int32_t> found = index.to_vector<int32_t>();
    const std::vector<int32_t> expected = best.to_vector<int32_t>();
    const auto k = static_cast<size_t>(shape[3]);
    int64_t hits = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const auto first = expected.begin() + static_cast<std::ptrdiff_t>(i / k * k);
      hits += std::count(first, first + static_cast<std::ptrdiff_t>(k), found[i]);
    }
    EXPECT_NEAR(static_cast<double>(hits) / static_cast<double>(found.size()), golden.real("mean_recall"), 1e-6);
  });
}

}  // namespace
}  // namespace quire::test
