#include "autograd/functions/embedding.h"

#include "autograd/functions/terms.h"
#include "core/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"
#include "kernels/planned_scratch.h"

namespace quire {

Variable embedding(Tape& tape, const Variable& table, const Tensor& ids, double scale) {
  QUIRE_CHECK(ids.rank() == 2, "embedding: ids {} are not [R, T]", ids.shape().to_string());
  const Tensor y = Tensor::empty({ids.dim(0), ids.dim(1), table.dim(1)}, table.value().dtype(), table.value().device());
  ops::embedding(y, table.value(), ids, scale);
  return tape.result("embedding", y, {&table}, [table, ids, scale](const Tensor& dout) {
    Gradient& dtable = *table.gradient();
    const DType wide = wide_type(dout.dtype());
    if (dtable.dtype() == wide) {
      const auto [to, accumulate] = dtable.target();
      if (!accumulate) to.zero();
      ops::embedding_backward(to, dout, ids, scale);
      return;
    }
    // Sums of rows are wide; the gradient of a table that is no parameter is not.
    const Tensor sums = Tensor::zeros(table.shape(), wide, dout.device());
    ops::embedding_backward(sums, dout, ids, scale);
    dtable.add(as_type(sums, dtable.dtype()));
  });
}

namespace {

// A part of the vocabulary, its columns of the logits, and its gradients.
struct Columns {
  int64_t begin, end;
  Tensor weight, bias;
  std::shared_ptr<Gradient> dweight, dbias;
  Tensor of(const Tensor& logits) const {
    return begin == 0 && end == logits.dim(1) ? logits : logits.slice(1, begin, end);
  }
};

// Returns the number of rows of a chunk of logits. With few rows, a GPU's products are limited by reading the weight
// and its gradient.
int64_t rows_of_chunk(int64_t budget, int64_t vocabulary, int64_t count, Device device) {
  constexpr int64_t kBudget = int64_t{16} << 20;
  constexpr int64_t kMinOnGpu = 4096;
  int64_t rows = (budget > 0 ? budget : kBudget) / vocabulary;
  const DeviceKind kind = device.kind == DeviceKind::meta ? planned_device() : device.kind;
  if (budget <= 0 && kind == DeviceKind::cuda) rows = std::max(rows, kMinOnGpu);
  return std::clamp<int64_t>(rows, 1, std::max<int64_t>(count, 1));
}

CrossEntropy sums_of(const Tensor& nll, const Tensor& log_sum, const Tensor& uniform) {
  CrossEntropy sums{.nll = nll, .likelihood = Tensor::empty({1}, DType::f64, nll.device())};
  ops::sum_all(sums.likelihood, nll);
  if (log_sum.defined()) {
    sums.z_loss = Tensor::zeros({1}, DType::f64, nll.device());
    ops::squared_norm(sums.z_loss, log_sum);
  }
  if (uniform.defined()) {
    sums.uniform = Tensor::empty({1}, DType::f64, nll.device());
    ops::sum_all(sums.uniform, uniform);
  }
  return sums;
}

// f64 [1]: the sum of the losses with their extras; the likelihood's own tensor when there are none.
Tensor with_extras(const CrossEntropy& sums, const CrossEntropyExtras& extras) {
  if (!extras.any()) return sums.likelihood;
  const Tensor total = Tensor::empty_like(sums.likelihood);
  ops::add(total, sums.likelihood, sums.likelihood, 1 - extras.smoothing, 0);
  if (sums.uniform.defined()) ops::add(total, total, sums.uniform, 1, extras.smoothing);
  if (sums.z_loss.defined()) ops::add(total, total, sums.z_loss, 1, extras.log_sum_weight);
  return total;
}

}  // namespace

CrossEntropy projection_cross_entropy(Tape& tape, const Variable& hidden, const Variable& weight, const Variable& bias,
                                      const Tensor& targets, const Tensor& mask, double seed, int64_t logits_budget,
                                      const CrossEntropyExtras& extras) {
  return projection_cross_entropy(tape, hidden, VocabularyPart{weight, bias}, VocabularyPart{}, targets, mask, seed,
                                  logits_budget, extras);
}

CrossEntropy projection_cross_entropy(Tape& tape, const Variable& hidden, const VocabularyPart& first,
                                      const VocabularyPart& more, const Tensor& targets, const Tensor& mask,
                                      double seed, int64_t logits_budget, const CrossEntropyExtras& extras) {
  const int64_t width = first.weight.dim(1);
  const Tensor h = hidden.value().reshape({hidden.value().numel() / width, width});
  const int64_t count = h.dim(0);
  QUIRE_CHECK(targets.numel() == count && mask.numel() == count, "cross_entropy: {} targets for {} positions",
              targets.numel(), count);
  QUIRE_CHECK(!more.weight.defined() || first.bias.defined() == more.bias.defined(),
              "cross_entropy: one part of the vocabulary has a bias and the other has none");
  const DType dtype = h.dtype();
  const Device device = h.device();
  const Tensor target = targets.reshape({count});
  const Tensor counted = mask.reshape({count});
  const Tensor nll = Tensor::empty({count}, wide_type(dtype), device);
  const auto per_row = [&](bool needed) { return needed ? Tensor::empty_like(nll) : Tensor(); };
  const Tensor log_sum = per_row(extras.log_sum_weight != 0), uniform = per_row(extras.smoothing != 0);
  const auto rows_of = [](const Tensor& of, int64_t begin, int64_t end) {
    return of.defined() ? of.slice(0, begin, end) : Tensor();
  };
  const bool has_gradient = tape.wants_gradient({&hidden, &first.weight, &first.bias, &more.weight, &more.bias});
  const Tensor factor = has_gradient ? Tensor::from(std::vector<double>{seed}, {1}, device) : Tensor();
  const Tensor dh = has_gradient && hidden.needs_gradient() ? Tensor::empty({count, width}, dtype, device) : Tensor();
  std::vector<Columns> parts;
  int64_t vocabulary = 0;
  bool learns = dh.defined();
  bool biased = false;
  for (const VocabularyPart* part : {&first, &more}) {
    if (!part->weight.defined()) continue;
    const int64_t end = vocabulary + part->weight.dim(0);
    parts.push_back({vocabulary, end, part->weight.value(), part->bias.value(),
                     has_gradient ? part->weight.gradient() : nullptr, has_gradient ? part->bias.gradient() : nullptr});
    vocabulary = end;
    biased = biased || parts.back().dbias != nullptr;
    learns = learns || biased || parts.back().dweight != nullptr;
  }
  const Tensor dbias = biased ? Tensor::zeros({vocabulary}, wide_type(dtype), device) : Tensor();

  // Chunks have nearly equal size, because the weight is read for each.
  const int64_t max_tokens = rows_of_chunk(logits_budget, vocabulary, count, device);
  const int64_t chunks = (count + max_tokens - 1) / max_tokens;
  const int64_t chunk = chunks == 0 ? 1 : (count + chunks - 1) / chunks;
  // Beside bf16 hidden states, logits and losses are f32, and their gradients, which are operands of products, have a
  // separate buffer. Rows begin at multiples of kAlign for tensor cores and vector instructions, whatever the
  // vocabulary's size; with a bias there are no gaps, because sum_rows needs contiguous rows.
  constexpr int64_t kAlign = 16;
  const int64_t stride = biased ? vocabulary : (vocabulary + kAlign - 1) / kAlign * kAlign;
  const auto make = [&](DType type) {
    const Tensor rows = Tensor::empty({chunk, stride}, type, device);
    return stride == vocabulary ? rows : rows.slice(1, 0, vocabulary);
  };
  const Tensor logits = make(wide_type(dtype));
  const Tensor dlogits = logits.dtype() == dtype || !has_gradient ? logits : make(dtype);
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t end = std::min(count, begin + chunk);
    const Tensor part = logits.slice(0, 0, end - begin);
    const Tensor from = h.slice(0, begin, end);
    for (const Columns& columns : parts) {
      ops::gemm(columns.of(part), from, columns.weight, {.transpose_b = true, .bias = columns.bias});
    }
    const Tensor dpart = learns ? dlogits.slice(0, 0, end - begin) : Tensor();
    ops::cross_entropy(nll.slice(0, begin, end), dpart, part, target.slice(0, begin, end), counted.slice(0, begin, end),
                       learns ? factor : Tensor(),
                       {.smoothing = extras.smoothing,
                        .log_sum_weight = extras.log_sum_weight,
                        .log_sum = rows_of(log_sum, begin, end),
                        .uniform = rows_of(uniform, begin, end)});
    if (!learns) continue;
    for (const Columns& columns : parts) {
      if (dh.defined()) {
        ops::gemm(dh.slice(0, begin, end), columns.of(dpart), columns.weight, {.accumulate = columns.begin > 0});
      }
      if (!columns.dweight) continue;
      const auto [to, accumulate] = columns.dweight->target();
      ops::gemm(to, columns.of(dpart), from, {.transpose_a = true, .accumulate = accumulate});
    }
    if (dbias.defined()) ops::sum_rows(dbias, dpart, begin > 0);
  }
  CrossEntropy result = sums_of(nll, log_sum, uniform);
  result.sum =
      tape.result("projection_cross_entropy", with_extras(result, extras),
                  {&hidden, &first.weight, &first.bias, &more.weight, &more.bias},
                  [dh, dbias, seed, parts, to = hidden.gradient(), shape = hidden.shape()](const Tensor& dsum) {
                    // On other devices the value is not read, because reading would wait for the device.
                    QUIRE_CHECK(dsum.device().kind != DeviceKind::cpu || dsum.data<double>()[0] == seed,
                                "projection_cross_entropy: swept with {}, but gradients were taken for {}",
                                dsum.data<double>()[0], seed);
                    if (to) to->add(dh.reshape(shape));
                    for (const Columns& columns : parts) {
                      if (columns.dbias) columns.dbias->add(dbias.slice(0, columns.begin, columns.end));
                    }
                  });
  return result;
}

}  // namespace quire
