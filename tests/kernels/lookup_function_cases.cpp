// Embeddings, the projection to the vocabulary with its cross-entropy, and positions, against compositions.
#include <cmath>

#include "autograd/functions/attention.h"
#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/embedding.h"
#include "autograd/functions/rotary.h"
#include "autograd/functions/rows.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

using Inputs = std::vector<Variable>;

OpCase& push(std::vector<OpCase>& cases, OpCase made, OneOutput composition, int64_t sum_length) {
  made.composition = one_output(std::move(composition));
  made.sum_length = sum_length;
  cases.push_back(std::move(made));
  return cases.back();
}

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
  const Tensor ids = r.integers({2, 5}, 0, 4);
  push(
      cases,
      function_case("embedding", "function", {r.normal({7, 3}), ids},
                    [](Tape& t, const Inputs& x) { return embedding(t, x[0], x[1].value(), 1.3); }),
      [](Tape& t, const Inputs& x) { return scale(t, gather_rows(t, x[0], x[1].value()), 1.3); }, 10);
  // Two tables as one: an id has a row of one of them.
  const Tensor mixed = RandomTensors(31).integers({3, 7}, -3, 4);
  const Tensor others = clone(mixed);
  for (int64_t i = 0; i < others.numel(); ++i) others.data<int32_t>()[i] = -1 - others.data<int32_t>()[i];
  push(
      cases,
      function_case("embedding", "of_two_tables", {r.normal({4, 3}), r.normal({3, 3}), mixed, others},
                    [](Tape& t, const Inputs& x) {
                      return add(t, embedding(t, x[0], x[2].value(), 1.3), embedding(t, x[1], x[3].value(), 0.7));
                    }),
      [](Tape& t, const Inputs& x) {
        return add(t, scale(t, gather_rows(t, x[0], x[2].value()), 1.3),
                   scale(t, gather_rows(t, x[1], x[3].value()), 0.7));
      },
      21);
  push(
      cases,
      function_case("gather_columns", "function", {r.normal({3, 5}), r.integers({11}, 0, 4)},
                    [](Tape& t, const Inputs& x) { return gather_columns(t, x[0], x[1].value()); }),
      [](Tape& t, const Inputs& x) {
        return permute(t, gather_rows(t, permute(t, x[0], {1, 0}), x[1].value()), {1, 0});
      },
      11)
      .wide = {0};
  const Tensor targets = r.integers({6}, 0, 7);
  const Tensor mask = r.flags({6});
  for (const int64_t budget : {1000, 15, 1}) {  // all positions at once, two at a time, one at a time
    OpCase& made = push(
        cases,
        function_case(
            "projection_cross_entropy", std::to_string(budget),
            {r.normal({2, 3, 5}), r.normal({7, 5}), r.normal({7}), targets, mask},
            [budget](Tape& t, const Inputs& x) {
              return projection_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value(), 1.0, budget).sum;
            }),
        [](Tape& t, const Inputs& x) {
          return composed_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value());
        },
        42);
    made.wide = {2};
    made.amplification = 8;
  }
  const CrossEntropyExtras extras{.smoothing = 0.2, .log_sum_weight = 0.05};
  OpCase& with_extras = push(
      cases,
      function_case(
          "projection_cross_entropy", "smoothed_with_z_loss",
          {r.normal({2, 3, 5}), r.normal({7, 5}), r.normal({7}), targets, mask},
          [extras](Tape& t, const Inputs& x) {
            return projection_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value(), 1.0, 15, extras).sum;
          }),
      [extras](Tape& t, const Inputs& x) {
        return composed_cross_entropy(t, x[0], x[1], x[2], x[3].value(), x[4].value(), extras);
      },
      42);
  with_extras.wide = {2};
  with_extras.amplification = 8;
  push(
      cases,
      function_case("projection_cross_entropy", "tied_embedding",
                    {r.normal({7, 3}), RandomTensors(8).integers({2, 3}, 0, 7), targets, mask},
                    [](Tape& t, const Inputs& x) {
                      const Variable h = embedding(t, x[0], x[1].value(), 2);
                      return projection_cross_entropy(t, h, x[0], {}, x[2].value(), x[3].value(), 1.0, 15).sum;
                    }),
      [](Tape& t, const Inputs& x) {
        const Variable h = scale(t, gather_rows(t, x[0], x[1].value()), 2);
        return composed_cross_entropy(t, h, x[0], {}, x[2].value(), x[3].value());
      },
      42)
      .amplification = 8;

  OpCase& two_parts = push(
      cases,
      function_case("projection_cross_entropy", "two_parts",
                    {r.normal({2, 3, 5}), r.normal({5, 5}), r.normal({5}), r.normal({2, 5}), r.normal({2}), targets,
                     Tensor::from(std::vector<uint8_t>{1, 1, 0, 1, 1, 1}, {6})},
                    [](Tape& t, const Inputs& x) {
                      return projection_cross_entropy(t, x[0], VocabularyPart{x[1], x[2]}, VocabularyPart{x[3], x[4]},
                                                      x[5].value(), x[6].value(), 1.0, 15)
                          .sum;
                    }),
      [](Tape& t, const Inputs& x) {
        const std::vector<Variable> weights{x[1], x[3]}, biases{x[2], x[4]};
        return composed_cross_entropy(t, x[0], concatenate(t, weights, 0), concatenate(t, biases, 0), x[5].value(),
                                      x[6].value());
      },
      42);
  two_parts.wide = {2, 4};
  two_parts.amplification = 8;

  // Features i and i + 2 of each head turn by the angle of the position, the others stay.
  const auto settings_for = [](const Tensor& table, const Tensor& head) {
    ops::RotaryInputs settings;
    settings.table = table;
    settings.origin = 5;
    settings.head = head;
    return settings;
  };
  const Tensor table = Tensor::zeros({10, 2, 2}, DType::f64);
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t position = i / 4 - 5;
    const double angle = static_cast<double>(position) * std::pow(9.0, -static_cast<double>(i % 2) / 2);
    values(table)[i] = i / 2 % 2 == 0 ? std::cos(angle) : std::sin(angle);
  }
  // Rows of the table for each position of x [R, N, ..]: [R, N, 2, 2].
  const auto angles = [](Tape& t, const Inputs& x, const Tensor& head) {
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < x[0].dim(0) * x[0].dim(1); ++i) {
      const int64_t n = i % x[0].dim(1), slots = x[0].dim(1);
      const int64_t written = head.defined() ? head.data<int32_t>()[i / slots] : 0;
      // Slot `written` - 1 holds position -1, the one before it -2.
      const int64_t position = head.defined() ? -1 - (written - 1 - n + 2 * slots) % slots : n;
      rows.push_back(static_cast<int32_t>(position + 5));
    }
    return reshape(t, gather_rows(t, reshape(t, x[1], {10, 4}), Tensor::from(rows, {x[0].dim(0), x[0].dim(1)})),
                   {x[0].dim(0), x[0].dim(1), 2, 2});
  };
  const auto rotated = [angles](Tape& t, const Inputs& x, const Tensor& head) {
    const Variable of_position = angles(t, x, head);
    const auto part = [&](int which) { return slice(t, of_position, 2, which, which + 1); };
    const auto features = [&](int64_t begin, int64_t end) { return slice(t, x[0], 3, begin, end); };
    const Variable cosine = part(0), sine = part(1), a = features(0, 2), b = features(2, 4);
    return concatenate(t,
                       std::vector{subtract(t, multiply(t, a, cosine), multiply(t, b, sine)),
                                   add(t, multiply(t, a, sine), multiply(t, b, cosine)), features(4, x[0].dim(3))},
                       3);
  };
  push(
      cases,
      function_case(
          "rotary", "function", {r.normal({2, 5, 3, 4}), table},
          [settings_for](Tape& t, const Inputs& x) { return rotary(t, x[0], settings_for(x[1].value(), {})); }),
      [rotated](Tape& t, const Inputs& x) { return rotated(t, x, {}); }, 4)
      .constants = {1};
  OpCase& ring = push(
      cases,
      function_case("rotary", "ring_function",
                    {r.normal({2, 5, 1, 7}), table, Tensor::from(std::vector<int32_t>{3, 0}, {2})},
                    [settings_for](Tape& t, const Inputs& x) {
                      return rotary(t, x[0], settings_for(x[1].value(), x[2].value()));
                    }),
      [rotated](Tape& t, const Inputs& x) { return rotated(t, x, x[2].value()); }, 4);
  ring.constants = {1};
  for (OpCase* made : {&cases[cases.size() - 1], &cases[cases.size() - 2]}) made->wide = {1};
}

}  // namespace quire::test
