// Golden gca: chunks chosen by landmarks, and grouped cross-attention to them. What chunk t chooses is read by the
// queries of chunk t + 1.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/listed_attention.h"
#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

using Leaves = std::map<std::string, Variable>;

class GroupedCrossAttention {
 public:
  explicit GroupedCrossAttention(GoldenCase& golden)
      : golden_(golden),
        leaves_(golden.leaves()),
        rows_(golden.number("batch")),
        chunks_(golden.number("n_chunk")),
        length_(golden.number("chunk")),
        queries_(golden.number("q_per_chunk")),
        heads_(golden.number("n_head")),
        kv_heads_(golden.number("n_kv_head")),
        size_(golden.number("head_dim")),
        top_k_(golden.number("topk")) {}

  void run() {
    Tape tape;
    const Variable scores = score(tape);
    golden_.expect("out/scores", scores.value());
    choose(scores.value());
    // The weights are a variable of their own, too, whose gradient the file has.
    const Variable chosen_scores = gather_rows(tape, reshape(tape, scores, {rows_ * chunks_ * chunks_, 1}), entries_);
    const Variable weight = softmax(tape, reshape(tape, chosen_scores, {rows_, chunks_, top_k_}), is_chosen_);
    golden_.expect("out/topk_w", weight.value());
    const Variable out = attend(tape, leaves_.at("q"), weight, leaves_.at("v"));
    golden_.expect("out/o", out.value());
    expect_lse();
    expect_parts();
    tape.backward({{weighted_sum(tape, out, golden_.get("grad_out/o")), 1.0}});
    leaves_.erase("gumbel");
    golden_.expect_gradients(leaves_);
    expect_gradient_of_weight(weight.value());
  }

 private:
  Variable score(Tape& tape) {
    const auto projected = [&](const std::string& states, const std::string& weight) {
      const Variable& x = leaves_.at(states);
      return golden_.flag("lmk_proj") ? matmul(tape, x, leaves_.at(weight), {.transpose_b = true}) : x;
    };
    const Variable products = matmul(tape, projected("lmk_h", "w_h"), projected("lmk_l", "w_l"), {.transpose_b = true});
    return scale(tape, products, golden_.real("score_scale"));
  }

  // With noise, where there is any; weights are those of the scores without it.
  void choose(const Tensor& scores) {
    std::vector<uint8_t> earlier;
    std::vector<int32_t> numbers;
    for (int64_t t = 0; t < chunks_; ++t) {
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
        earlier.push_back(chunk < t ? 1 : 0);
        numbers.push_back(earlier.back());
      }
    }
    golden_.expect("out/mask", Tensor::from(numbers, {chunks_, chunks_}));
    Tape tape(false);
    Variable noisy = Variable::constant(scores);
    if (golden_.flag("has_noise")) noisy = add(tape, noisy, Variable::constant(golden_.get("in/gumbel")));
    const Tensor index = top_k(noisy.value(), top_k_, Tensor::from(earlier, {chunks_, chunks_}, test_device()));
    golden_.expect("out/topk_idx", index);
    // As numbers of chunks of all rows, and of scores.
    std::vector<int32_t> chosen = index.to_vector<int32_t>(), entries, list;
    std::vector<uint8_t> is_chosen;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const auto line = static_cast<int32_t>(i) / static_cast<int32_t>(top_k_);
      is_chosen.push_back(chosen[i] >= 0 ? 1 : 0);
      entries.push_back(chosen[i] < 0 ? -1 : line * static_cast<int32_t>(chunks_) + chosen[i]);
      if (chosen[i] >= 0) chosen[i] += line / static_cast<int32_t>(chunks_) * static_cast<int32_t>(chunks_);
    }
    for (int64_t i = 0; i < rows_ * chunks_ * queries_; ++i) {
      list.push_back(static_cast<int32_t>(i / queries_ % chunks_ - 1));
    }
    is_chosen_ = Tensor::from(is_chosen, index.shape(), test_device());
    entries_ = Tensor::from(entries, {static_cast<int64_t>(entries.size())}, test_device());
    settings_.blocks = Tensor::from(chosen, {rows_, chunks_, 1, top_k_}, test_device());
    settings_.list = Tensor::from(list, {rows_, chunks_ * queries_}, test_device());
    settings_.scale = golden_.real("attn_scale");
    settings_.softmax_one = golden_.flag("softmax1");
  }

  Variable attend(Tape& tape, const Variable& q, const Variable& weight, const Variable& values) const {
    const auto by_chunk = [&](const Variable& x) {
      return reshape(tape, x, {rows_ * chunks_, length_, kv_heads_, x.dim(3)});
    };
    return listed_attention(tape, q, by_chunk(leaves_.at("k")), by_chunk(values), weight, settings_);
  }

  void expect_lse() {
    const Tensor q = golden_.get("in/q");
    ops::ListedAttentionInputs in = settings_;
    in.q = q;
    const Shape stored{rows_ * chunks_, length_, kv_heads_, size_};
    in.keys = golden_.get("in/k").reshape(stored);
    in.values = golden_.get("in/v").reshape(stored);
    in.weight = golden_.get("out/topk_w");
    const Tensor lse = zeros({rows_, heads_, q.dim(1), top_k_}, q.dtype());
    ops::listed_attention(zeros(q.shape(), q.dtype()), lse, {}, in);
    Tape tape(false);
    golden_.expect("out/lse", permute(tape, Variable::constant(lse), {0, 2, 3, 1}).value());
  }

  // One entry of every list at a time, with weight one.
  void expect_parts() {
    Tape tape(false);
    std::vector<Variable> parts;
    for (int64_t n = 0; n < top_k_; ++n) {
      std::vector<double> one(static_cast<size_t>(rows_ * chunks_ * top_k_), 0);
      for (size_t i = static_cast<size_t>(n); i < one.size(); i += static_cast<size_t>(top_k_)) one[i] = 1;
      const Tensor weight = converted(Tensor::from(one, {rows_, chunks_, top_k_}, test_device()), golden_.dtype());
      const Variable part = attend(tape, leaves_.at("q"), Variable::constant(weight), leaves_.at("v"));
      parts.push_back(reshape(tape, part, {rows_, part.dim(1), 1, heads_, size_}));
    }
    golden_.expect("out/o_chunk", concatenate(tape, parts, 2).value());
  }

  void expect_gradient_of_weight(const Tensor& weights) {
    Tape tape;
    const Variable weight = Variable::leaf(weights);
    const Variable out = attend(tape, leaves_.at("q"), weight, leaves_.at("v"));
    tape.backward({{weighted_sum(tape, out, golden_.get("grad_out/o")), 1.0}});
    golden_.expect("grad/topk_w", weight.gradient()->value());
  }

  GoldenCase& golden_;
  Leaves leaves_;
  int64_t rows_, chunks_, length_, queries_, heads_, kv_heads_, size_, top_k_;
  ops::ListedAttentionInputs settings_;
  Tensor entries_, is_chosen_;
};

TEST(GoldenGca, AllCases) {
  GoldenFile(golden_folder(), "gca").for_each_case([](GoldenCase& golden) { GroupedCrossAttention(golden).run(); });
}

}  // namespace
}  // namespace quire::test
