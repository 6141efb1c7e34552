// Golden vq_quantize: nearest codewords, commitment loss, straight-through gradients and moving averages of codebooks.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/vq.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

Tensor flags(const Tensor& integers) {
  const std::vector<int32_t> from = integers.to_vector<int32_t>();
  return Tensor::from(std::vector<uint8_t>(from.begin(), from.end()), {integers.numel()}, test_device());
}

class Quantizer {
 public:
  explicit Quantizer(GoldenCase& golden)
      : golden_(golden),
        count_(golden.number("batch") * golden.number("seq_len")),
        heads_(golden.number("n_kv_head")),
        size_(golden.number("d_k")) {}

  void run() {
    const Tensor codebook = codewords(golden_.get("in/c_sum"), golden_.get("in/c_count"));
    golden_.expect("out/codebook", codebook);
    forward_and_backward(codebook);
    steps();
  }

 private:
  Tensor codewords(const Tensor& sum, const Tensor& count) const {
    const Tensor codebook = Tensor::empty_like(sum);
    ops::codewords(codebook, sum, count, golden_.real("count_floor"), 0);
    return codebook;
  }

  void forward_and_backward(const Tensor& codebook) {
    const Tensor mask = flags(golden_.get("in/mask"));
    const auto gradient = [&](bool commitment_alone) {
      const Variable x = Variable::leaf(golden_.get("in/x"));
      Tape tape;
      const Quantized y = quantize(tape, x, codebook, mask, true);
      const double share = 1.0 / static_cast<double>(count_);
      if (commitment_alone) {
        tape.backward({{y.error, share}});
        return x.gradient()->value();
      }
      golden_.expect("out/z", y.codes);
      golden_.expect("out/x_hat", y.keys.value());
      const double mean = y.error.value().to_vector<double>()[0] * share;
      golden_.expect("out/commit_loss", converted(Tensor::from(std::vector<double>{mean}, {1}), golden_.dtype()));
      tape.backward({{weighted_sum(tape, y.keys, golden_.get("grad_out/x_hat")), 1.0},
                     {y.error, share * golden_.real("commit_weight")}});
      return x.gradient()->value();
    };
    golden_.expect("grad/x", gradient(false));
    golden_.expect("grad/x_commit", gradient(true));

    const Tensor x = golden_.get("in/x");
    const Tensor error = zeros({x.dim(0), x.dim(1), heads_}, x.dtype());
    const Shape vectors{count_, heads_, size_};
    ops::nearest_code(zeros({count_, heads_}, DType::i32), Tensor::empty_like(x).reshape(vectors),
                      error.reshape({count_, heads_}), x.reshape(vectors), codebook);
    golden_.expect("out/err2", error);
  }

  void steps() {
    const Tensor sum = part(golden_.get("in/c_sum"), 0, 0, heads_);
    const Tensor count = part(golden_.get("in/c_count"), 0, 0, heads_);
    const Tensor control = Tensor::from(std::vector<double>{1, 1}, {2}, test_device());
    const Tensor all_x = golden_.get("in/x_step");
    const Tensor all_masks = golden_.get("in/mask_step");
    std::map<std::string, Tensor> kept;
    const auto keep = [&](const std::string& name, const Tensor& value) {
      std::vector<int64_t> one{1};
      one.insert(one.end(), value.shape().begin(), value.shape().end());
      Tensor& all = kept[name];
      const Tensor copy = part(value, 0, 0, value.dim(0)).reshape(Shape(one));
      all = all.defined() ? joined(all, copy, 0) : copy;
    };
    for (int64_t i = 0; i < golden_.number("n_step"); ++i) {
      const Tensor x = all_x.select(0, i).reshape({count_, heads_, size_});
      const Tensor codebook = codewords(sum, count);
      const Tensor codes = zeros({count_, heads_}, DType::i32);
      ops::nearest_code(codes, Tensor::empty_like(x), zeros({count_, heads_}, x.dtype()), x, codebook);
      const Tensor sums = zeros(sum.shape(), sum.dtype());
      const Tensor counts = zeros(count.shape(), count.dtype());
      ops::code_statistics(counts, sums, x, codes, flags(all_masks.select(0, i)));
      ops::codebook_update(sum, count, sums, counts, {}, {}, control, {.decay = golden_.real("gamma")});
      keep("step_codebook", codebook);
      keep("step_z", codes.reshape({golden_.number("batch"), golden_.number("seq_len"), heads_}));
      keep("step_c_sum", sum);
      keep("step_c_count", count);
    }
    for (const auto& [name, value] : kept) golden_.expect("out/" + name, value);
  }

  GoldenCase& golden_;
  int64_t count_, heads_, size_;
};

TEST(GoldenVqQuantize, AllCases) {
  GoldenFile(golden_folder(), "vq_quantize").for_each_case([](GoldenCase& golden) { Quantizer(golden).run(); });
}

}  // namespace
}  // namespace quire::test
