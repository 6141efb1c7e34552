// Golden xl_rel, kind rel_shift. quire has no shift operation: attention reads its table by distance. out/y is read
// from the attention operation itself: without keys and biases and with a unit matrix as table r, the logit of query i
// and key j is the entry of x that the indexing picks, and log(probability) + lse gives it back. grad/x comes from the
// obvious reference below, because logit gradients behind a softmax always sum to zero; attention's own gradient is
// then compared with that reference for the logit gradients it does have.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "layers/pass/visibility.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

// dx [B, H, T, S] of dy [B, H, T, S] under y[i, j] = x[i, j + T - 1 - i] for j <= i + carried.
Tensor unshifted(const Tensor& dy, int64_t carried) {
  const int64_t queries = dy.dim(2);
  const int64_t keys = dy.dim(3);
  const Tensor dx = Tensor::zeros(dy.shape(), DType::f64);
  for (int64_t line = 0; line < dy.numel() / keys; ++line) {
    const int64_t i = line % queries;
    for (int64_t j = 0; j <= i + carried; ++j) {
      dx.data<double>()[line * keys + j + queries - 1 - i] = dy.data<double>()[line * keys + j];
    }
  }
  return dx;
}

TEST(GoldenXlRel, RelativeShift) {
  GoldenFile(golden_folder(), "xl_rel").for_each_case("rel_shift", [](GoldenCase& golden) {
    const int64_t rows = golden.number("batch");
    const int64_t heads = golden.number("heads");
    const int64_t queries = golden.number("seg_len");
    const int64_t carried = golden.number("mem_len");
    const int64_t keys = queries + carried;
    const DType dtype = golden.dtype();
    const auto zeros = [&](const Shape& shape) { return Variable::constant(test::zeros(shape, dtype)); };

    AttentionVariables x;
    x.q = Variable::leaf(swapped(golden.get("in/x"), 1, 2));  // [B, T, H, S]: the head size is S
    x.k = zeros({rows, queries, heads, keys});
    x.u = zeros({heads, keys});
    x.v_bias = zeros({heads, keys});
    const Tensor unit = Tensor::zeros({keys, heads, keys}, DType::f64);
    for (int64_t i = 0; i < keys * heads; ++i) unit.data<double>()[i * keys + i / heads] = 1;
    x.r = Variable::constant(converted(unit, dtype).to(test_device()));
    ops::AttentionInputs settings;
    if (carried > 0) {
      x.cache_k = zeros({rows, carried, heads, keys});
      settings.cache_head = test::zeros({rows}, DType::i32);
    }
    const std::vector<int64_t> lengths(static_cast<size_t>(rows), carried);
    const Batch batch = one_segment(rows, queries, std::vector<uint8_t>(static_cast<size_t>(rows), 1));
    settings.first_visible =
        Tensor::from(first_visible(batch, segments_of(batch), lengths, std::nullopt), {rows, queries}, test_device());

    x = one_hot_values(x, settings, carried);
    Tape tape;
    const Variable out = attention(tape, x, settings);
    const Tensor prob = converted(swapped(out.value(), 1, 2), DType::f64).to(kCpu);

    ops::AttentionInputs in = settings;
    in.q = x.q.value();
    in.k = x.k.value();
    in.v = x.v.value();
    in.cache_k = x.cache_k.value();
    in.cache_v = x.cache_v.value();
    in.r = x.r.value();
    in.u = x.u.value();
    in.v_bias = x.v_bias.value();
    const Tensor lse = test::zeros({rows, heads, queries}, dtype);
    ops::attention(test::zeros(out.shape(), dtype), lse, in);
    const std::vector<double> log_sum = values_of(lse);

    const Tensor y = Tensor::zeros(prob.shape(), DType::f64);
    std::vector<int32_t> valid(static_cast<size_t>(queries * keys));
    for (int64_t i = 0; i < prob.numel(); ++i) {
      const double p = prob.data<double>()[i];
      if (p == 0) continue;
      y.data<double>()[i] = std::log(p) + log_sum[static_cast<size_t>(i / keys)];
      valid[static_cast<size_t>(i % (queries * keys))] = 1;
    }
    golden.expect("out/y", converted(y, dtype));
    golden.expect("out/valid", Tensor::from(valid, {queries, keys}));
    const Tensor dy = converted(golden.get("grad_out/y"), DType::f64).to(kCpu);
    golden.expect("grad/x", converted(unshifted(dy, carried), dtype));

    // One-hot values make dy the gradient of the probabilities: dlogit = p (dy - sum of p dy).
    const Tensor dlogit = Tensor::zeros(prob.shape(), DType::f64);
    for (int64_t line = 0; line < prob.numel() / keys; ++line) {
      const double* p = prob.data<double>() + line * keys;
      const double* g = dy.data<double>() + line * keys;
      double mean = 0;
      for (int64_t j = 0; j < keys; ++j) mean += p[j] * g[j];
      for (int64_t j = 0; j < keys; ++j) dlogit.data<double>()[line * keys + j] = p[j] * (g[j] - mean);
    }
    tape.backward({{weighted_sum(tape, out, swapped(golden.get("grad_out/y"), 1, 2)), 1.0}});
    EXPECT_LE(relative_error(swapped(x.q.gradient()->value(), 1, 2), unshifted(dlogit, carried)), golden.real("rtol"));
  });
}

}  // namespace
}  // namespace quire::test
