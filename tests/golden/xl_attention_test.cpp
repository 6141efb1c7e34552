// Golden xl_rel, kind attn: one Transformer-XL attention block built from differentiable operations.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "kernels/position.h"
#include "layers/pass/visibility.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/hand_batch.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

TEST(GoldenXlRel, Attention) {
  GoldenFile(golden_folder(), "xl_rel").for_each_case("attn", [](GoldenCase& golden) {
    const int64_t rows = golden.number("batch");
    const int64_t tokens = golden.number("seg_len");
    const int64_t carried = golden.number("mem_len");
    const int64_t heads = golden.number("heads");
    const int64_t size = golden.number("d_head");
    const int64_t span = golden.number("attn_span");
    const bool pre = golden.flag("pre_lnorm");
    const std::map<std::string, Variable> in = golden.leaves();
    Tape tape;
    const auto normalized = [&](const Variable& x) {
      return layer_norm(tape, x, in.at("ln_g"), in.at("ln_b"), golden.real("ln_eps"));
    };
    const auto heads_of = [&](const char* weight, const Variable& x) {
      return reshape(tape, linear(tape, x, in.at(weight)), {rows, x.dim(1), heads, size});
    };

    const Variable x = in.at("x");
    const Variable z = pre ? normalized(x) : x;
    AttentionVariables a;
    a.q = heads_of("W_q", z);
    a.k = heads_of("W_k", z);
    a.v = heads_of("W_v", z);
    ops::AttentionInputs settings;
    if (carried > 0) {
      // Carried states are constants; the weights that read them learn from them.
      const Variable memory = in.at("mem").detached();
      const Variable z_memory = pre ? normalized(memory) : memory;
      a.cache_k = heads_of("W_k", z_memory);
      a.cache_v = heads_of("W_v", z_memory);
      settings.cache_head = zeros({rows}, DType::i32);
    }
    const Tensor angles = zeros({carried + tokens, x.dim(2)}, golden.dtype());
    ops::sinusoid(angles, golden.number("clamp_len"), 1e4);
    golden.expect("out/r", angles);
    a.r = reshape(tape, linear(tape, Variable::constant(angles), in.at("W_r")), {carried + tokens, heads, size});
    a.u = in.at("u");
    a.v_bias = in.at("v");

    const std::vector<int64_t> lengths(static_cast<size_t>(rows), carried);
    const Batch batch = one_segment(rows, tokens, std::vector<uint8_t>(static_cast<size_t>(rows), 0));
    const std::optional<int64_t> window = span > 0 ? std::optional(span - 1) : std::nullopt;
    settings.first_visible =
        Tensor::from(first_visible(batch, segments_of(batch), lengths, window), {rows, tokens}, test_device());
    settings.scale = golden.real("scale");

    const Variable mixed = attention(tape, a, settings);
    golden.expect("out/vec", mixed.value());
    golden.expect("out/prob", probabilities(a, settings, carried));
    const Variable sum = add(tape, x, linear(tape, reshape(tape, mixed, {rows, tokens, heads * size}), in.at("W_o")));
    const Variable y = pre ? sum : normalized(sum);
    golden.expect("out/y", y.value());
    tape.backward({{weighted_sum(tape, y, golden.get("grad_out/y")), 1.0}});
    golden.expect_gradients(in);
  });
}

}  // namespace
}  // namespace quire::test
