#include "autograd/functions/embedding.h"

#include "core/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"

namespace quire {

Variable embedding(Tape& tape, const Variable& table, const Tensor& ids, double scale) {
  QUIRE_CHECK(ids.rank() == 2, "embedding: ids {} are not [R, T]", ids.shape().to_string());
  const Tensor y = Tensor::empty({ids.dim(0), ids.dim(1), table.dim(1)}, table.value().dtype(), table.value().device());
  ops::embedding(y, table.value(), ids, scale);
  const Variable out = tape.output(y, {&table});
  if (out.needs_gradient()) {
    tape.record("embedding", out, [dtable = table.gradient(), ids, scale](const Tensor& dout) {
      const auto [to, accumulate] = dtable->target();
      if (!accumulate) to.zero();
      ops::embedding_backward(to, dout, ids, scale);
    });
  }
  return out;
}

CrossEntropy projection_cross_entropy(Tape& tape, const Variable& hidden, const Variable& weight, const Tensor& targets,
                                      const Tensor& mask, int64_t logits_budget) {
  const int64_t width = weight.dim(1);
  const int64_t vocabulary = weight.dim(0);
  const Tensor h = hidden.value().reshape({hidden.value().numel() / width, width});
  const int64_t count = h.dim(0);
  QUIRE_CHECK(targets.numel() == count && mask.numel() == count, "cross_entropy: {} targets for {} positions",
              targets.numel(), count);
  const DType dtype = h.dtype();
  const Device device = h.device();
  const Tensor target = targets.reshape({count});
  const Tensor counted = mask.reshape({count});
  const Tensor nll = Tensor::empty({count}, dtype, device);
  const Tensor lse = Tensor::empty({count}, dtype, device);
  const int64_t chunk = std::clamp<int64_t>(logits_budget / vocabulary, 1, std::max<int64_t>(count, 1));
  const Tensor logits = Tensor::empty({chunk, vocabulary}, dtype, device);

  const auto project = [w = weight.value()](const Tensor& to, const Tensor& from) {
    ops::gemm(to, from, w, {.transpose_b = true});
  };
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t end = std::min(count, begin + chunk);
    const Tensor part = logits.slice(0, 0, end - begin);
    project(part, h.slice(0, begin, end));
    ops::cross_entropy(nll.slice(0, begin, end), lse.slice(0, begin, end), part, target.slice(0, begin, end),
                       counted.slice(0, begin, end));
  }
  const Tensor total = Tensor::empty({1}, DType::f64, device);
  ops::sum_all(total, nll);
  const Variable sum = tape.output(total, {&hidden, &weight});
  if (sum.needs_gradient()) {
    const bool kept = chunk >= count;
    const Tensor saved = kept ? logits : Tensor();
    tape.record("projection_cross_entropy", sum,
                [=, w = weight.value(), dh = hidden.gradient(), dw = weight.gradient()](const Tensor& dsum) {
                  const Tensor dlogits = kept ? saved : Tensor::empty({chunk, vocabulary}, dtype, device);
                  Gradient::Target to_h = dh ? dh->target() : Gradient::Target{};
                  for (int64_t begin = 0; begin < count; begin += chunk) {
                    const int64_t end = std::min(count, begin + chunk);
                    const Tensor part = dlogits.slice(0, 0, end - begin);
                    const Tensor from = h.slice(0, begin, end);
                    if (!kept) project(part, from);
                    ops::cross_entropy_backward(part, lse.slice(0, begin, end), target.slice(0, begin, end),
                                                counted.slice(0, begin, end), dsum);
                    if (dh) {
                      ops::gemm(to_h.tensor.reshape({count, width}).slice(0, begin, end), part, w,
                                {.accumulate = to_h.accumulate});
                    }
                    if (dw) {
                      const auto [to, accumulate] = dw->target();
                      ops::gemm(to, part, from, {.transpose_a = true, .accumulate = accumulate});
                    }
                  }
                });
  }
  return {sum, nll};
}

}  // namespace quire
