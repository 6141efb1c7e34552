// Embeddings, columns of tables, and the projection to the vocabulary with its cross-entropy, against compositions.
#include "autograd/functions/attention.h"
#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/embedding.h"
#include "autograd/functions/rows.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

// The negative log-likelihood of the targets with mask 1, from all logits at once: f64 [1].
Variable composed_cross_entropy(Tape& t, const Variable& hidden, const Variable& weight, const Variable& bias,
                                const Tensor& targets, const Tensor& mask, const CrossEntropyExtras& extras = {}) {
  const int64_t count = targets.numel();
  const int64_t vocabulary = weight.dim(0);
  Variable logits = matmul(t, reshape(t, hidden, {count, hidden.dim(-1)}), weight, {.transpose_b = true});
  if (bias.defined()) logits = add(t, logits, bias);
  std::vector<int32_t> places;
  for (int64_t m = 0; m < count; ++m) {
    places.push_back(static_cast<int32_t>(m * vocabulary + targets.data<int32_t>()[m]));
  }
  const Variable of_targets =
      gather_rows(t, reshape(t, logits, {count * vocabulary, 1}), Tensor::from(places, {count}));
  const Variable log_sum = log_sum_exp(t, logits);
  Variable loss = subtract(t, log_sum, reshape(t, of_targets, {count}));
  if (extras.any()) {
    const Variable uniform = subtract(t, log_sum, mean(t, logits, -1));
    loss = add(t, scale(t, loss, 1 - extras.smoothing), scale(t, uniform, extras.smoothing));
    loss = add(t, loss, scale(t, multiply(t, log_sum, log_sum), extras.log_sum_weight));
  }
  return sum(t, select(t, mask, loss, {}), 0, true);
}

}  // namespace

void add_lookup_function_cases(std::vector<OpCase>& cases) {
  RandomTensors r(3);
  struct EmbeddingForm {
    Shape table, ids;
    int64_t min_id = 0;  // ids below zero have no row
  };
  for (const EmbeddingForm& form : {EmbeddingForm{{1, 1}, {1, 1}},
                                    {{7, 3}, {2, 5}},
                                    {{5, 3}, {1, 0}},
                                    {{17, 129}, {7, 43}},
                                    {{3, 259}, {2, 35}},
                                    {{2, 24}, {13, 31}},     // long runs of one token
                                    {{1, 3}, {2, 35}, -40},  // nearly all have none, in long runs
                                    {{7, 129}, {7, 43}, -3},
                                    {{5, 8}, {1, 1}, -1}}) {
    add_composed(
        cases, "embedding", name_of(form.table) + "_" + name_of(form.ids) + (form.min_id < 0 ? "_absent" : ""),
        {r.normal(form.table), r.integers(form.ids, form.min_id, form.table[0])},
        std::max<int64_t>(1, form.ids.numel()),
        [](Tape& t, const Inputs& x) { return embedding(t, x[0], x[1].value(), 1.3); },
        [](Tape& t, const Inputs& x) { return scale(t, gather_rows(t, x[0], x[1].value()), 1.3); });
  }
  // Two tables as one: an id has a row of one of them.
  const Tensor mixed = RandomTensors(31).integers({3, 7}, -3, 4);
  const Tensor others = clone(mixed);
  for (int64_t i = 0; i < others.numel(); ++i) others.data<int32_t>()[i] = -1 - others.data<int32_t>()[i];
  add_composed(
      cases, "embedding", "of_two_tables", {r.normal({4, 3}), r.normal({3, 3}), mixed, others}, 21,
      [](Tape& t, const Inputs& x) {
        return add(t, embedding(t, x[0], x[2].value(), 1.3), embedding(t, x[1], x[3].value(), 0.7));
      },
      [](Tape& t, const Inputs& x) {
        return add(t, scale(t, gather_rows(t, x[0], x[2].value()), 1.3),
                   scale(t, gather_rows(t, x[1], x[3].value()), 0.7));
      });
  for (const auto& [heads, buckets, count] : {std::tuple{1, 1, 1}, {3, 8, 29}, {2, 5, 0}}) {
    add_composed(
        cases, "gather_columns", std::to_string(count), {r.normal({heads, buckets}), r.integers({count}, 0, buckets)},
        count + 1, [](Tape& t, const Inputs& x) { return gather_columns(t, x[0], x[1].value()); },
        [](Tape& t, const Inputs& x) {
          return permute(t, gather_rows(t, permute(t, x[0], {1, 0}), x[1].value()), {1, 0});
        })
        .wide = {0};
  }
  const Tensor targets = r.integers({6}, 0, 7);
  const Tensor mask = r.flags({6});
  for (const int64_t budget : {1000, 15, 1}) {  // all positions at once, two at a time, one at a time
    OpCase& made = add_composed(
        cases, "projection_cross_entropy", std::to_string(budget),
        {r.normal({2, 3, 5}), r.normal({7, 5}), r.normal({7}), targets, mask}, 42,
        [budget](Tape& t, const Inputs& x) {
          return projection_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value(), 1.0, budget).sum;
        },
        [](Tape& t, const Inputs& x) {
          return composed_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value());
        });
    made.wide = {2};
    made.amplification = 8;
  }
  const CrossEntropyExtras extras{.smoothing = 0.2, .log_sum_weight = 0.05};
  OpCase& with_extras = add_composed(
      cases, "projection_cross_entropy", "smoothed_with_z_loss",
      {r.normal({2, 3, 5}), r.normal({7, 5}), r.normal({7}), targets, mask}, 42,
      [extras](Tape& t, const Inputs& x) {
        return projection_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value(), 1.0, 15, extras).sum;
      },
      [extras](Tape& t, const Inputs& x) {
        return composed_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value(), extras);
      });
  with_extras.wide = {2};
  with_extras.amplification = 8;
  add_composed(
      cases, "projection_cross_entropy", "tied_embedding",
      {r.normal({7, 3}), RandomTensors(8).integers({2, 3}, 0, 7), targets, mask}, 42,
      [](Tape& t, const Inputs& x) {
        const Variable h = embedding(t, x[0], x[1].value(), 2);
        return projection_cross_entropy(t, h, x[0], {}, x[2].value(), x[3].value(), 1.0, 15).sum;
      },
      [](Tape& t, const Inputs& x) {
        const Variable h = scale(t, gather_rows(t, x[0], x[1].value()), 2);
        return composed_cross_entropy(t, h, x[0], {}, x[2].value(), x[3].value());
      })
      .amplification = 8;

  OpCase& two_parts = add_composed(
      cases, "projection_cross_entropy", "two_parts",
      {r.normal({2, 3, 5}), r.normal({5, 5}), r.normal({5}), r.normal({2, 5}), r.normal({2}), targets,
       Tensor::from(std::vector<uint8_t>{1, 1, 0, 1, 1, 1}, {6})},
      42,
      [](Tape& t, const Inputs& x) {
        return projection_cross_entropy(t, x[0], VocabularyPart{x[1], x[2]}, VocabularyPart{x[3], x[4]}, x[5].value(),
                                        x[6].value(), 1.0, 15)
            .sum;
      },
      [](Tape& t, const Inputs& x) {
        const std::vector<Variable> weights{x[1], x[3]}, biases{x[2], x[4]};
        return composed_cross_entropy(t, x[0], concatenate(t, weights, 0), concatenate(t, biases, 0), x[5].value(),
                                      x[6].value());
      });
  two_parts.wide = {2, 4};
  two_parts.amplification = 8;
}

}  // namespace quire::test
