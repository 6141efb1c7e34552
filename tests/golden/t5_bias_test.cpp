// Golden t5_bias: buckets, and attention over a window with a bias by distance.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "layers/pass/visibility.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

TEST(GoldenT5Bias, Bucket) {
  GoldenFile(golden_folder(), "t5_bias").for_each_case("bucket", [](GoldenCase& golden) {
    std::vector<int32_t> buckets;
    const Tensor relative = golden.get("in/rel_pos");
    for (const int32_t position : relative.to_vector<int32_t>()) {
      buckets.push_back(static_cast<int32_t>(t5_bucket(position, golden.number("num_buckets"),
                                                       golden.number("max_distance"), golden.flag("bidirectional"))));
    }
    golden.expect("out/bucket", Tensor::from(buckets, relative.shape(), test_device()));
  });
}

// The bias by distance and the visible pairs, written out as the [T, S] matrices that attention never makes.
void expect_bias_and_mask(GoldenCase& golden, const Tensor& bias, const std::vector<int32_t>& first_visible) {
  const int64_t queries = golden.number("q_len");
  const int64_t keys = golden.number("k_len");
  const int64_t heads = golden.number("heads");
  const Tensor table = converted(bias, DType::f64).to(kCpu);
  const Tensor matrix = Tensor::zeros({heads, queries, keys}, DType::f64);
  std::vector<int32_t> mask(static_cast<size_t>(queries * keys));
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t position = j - (keys - queries);
      const int64_t last = golden.flag("attend_self") ? i : i - 1;
      if (position < first_visible[static_cast<size_t>(i)] || position > last) continue;
      mask[static_cast<size_t>(i * keys + j)] = 1;
      for (int64_t h = 0; h < heads; ++h) {
        matrix.data<double>()[(h * queries + i) * keys + j] =
            table.data<double>()[(h + 1) * table.dim(1) - 1 - (i - position)];
      }
    }
  }
  golden.expect("out/bias", converted(matrix, golden.dtype()));
  golden.expect("out/mask", Tensor::from(mask, {queries, keys}));
}

TEST(GoldenT5Bias, Attention) {
  GoldenFile(golden_folder(), "t5_bias").for_each_case("attn", [](GoldenCase& golden) {
    const int64_t rows = golden.number("batch");
    const int64_t queries = golden.number("q_len");
    const int64_t keys = golden.number("k_len");
    const int64_t carried = keys - queries;  // keys before the first query lie in the ring
    const int64_t window = golden.number("window");
    golden.expect_only("bidirectional", 0);

    const std::map<std::string, Variable> in = golden.leaves();
    const Tensor k = in.at("k").value();
    const Tensor v = in.at("v").value();
    AttentionVariables x;
    x.q = in.at("q");
    x.k = Variable::leaf(part(k, 1, carried, keys));
    x.v = Variable::leaf(part(v, 1, carried, keys));
    ops::AttentionInputs settings;
    if (carried > 0) {
      x.cache_k = Variable::leaf(part(k, 1, 0, carried));
      x.cache_v = Variable::leaf(part(v, 1, 0, carried));
      settings.cache_head = zeros({rows}, DType::i32);
    }
    const std::vector<int64_t> lengths(static_cast<size_t>(rows), carried);
    const Batch batch = one_segment(rows, queries, std::vector<uint8_t>(static_cast<size_t>(rows), 1));
    const std::vector<int32_t> visible = first_visible(batch, segments_of(batch), lengths, window);
    settings.first_visible = Tensor::from(visible, {rows, queries}, test_device());
    settings.attend_self = golden.flag("attend_self");
    settings.scale = golden.real("scale");

    const int64_t reach = std::min(keys, window + 1);
    std::vector<int32_t> buckets;
    for (int64_t n = 0; n < reach; ++n) {
      buckets.push_back(static_cast<int32_t>(
          t5_bucket(n + 1 - reach, golden.number("num_buckets"), golden.number("max_distance"), false)));
    }
    Tape tape;
    x.bias = gather_columns(tape, in.at("bias_table"), Tensor::from(buckets, {reach}, test_device()));
    const Variable out = attention(tape, x, settings);

    golden.expect("out/o", out.value());
    golden.expect("out/prob", probabilities(x, settings, carried));
    expect_bias_and_mask(golden, x.bias.value(), visible);

    tape.backward({{weighted_sum(tape, out, golden.get("grad_out/o")), 1.0}});
    golden.expect("grad/q", x.q.gradient()->value());
    golden.expect("grad/bias_table", in.at("bias_table").gradient()->value());
    const auto whole = [&](const Variable& cached, const Variable& current) {
      return carried > 0 ? joined(cached.gradient()->value(), current.gradient()->value(), 1)
                         : current.gradient()->value();
    };
    golden.expect("grad/k", whole(x.cache_k, x.k));
    golden.expect("grad/v", whole(x.cache_v, x.v));
  });
}

}  // namespace
}  // namespace quire::test
