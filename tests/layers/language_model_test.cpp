// Tests the parts before and after the blocks of a model: positions at the input, a bias of the vocabulary, layer drop.
#include "layers/model/language_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/inserting_stack.h"
#include "tests/support/model_reader.h"
#include "tests/support/parameters.h"
#include "tests/support/test_device.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

constexpr int64_t kVocabulary = 7;

class Model {
 public:
  explicit Model(const std::vector<std::string>& settings, int64_t rows = 1, int64_t vocabulary = kVocabulary)
      : reader_(
            parse_config<RunConfig>("model: {width: 6, heads: 2, layers: 1, position: {kind: none}, mlp: {kind: relu, "
                                    "hidden: 5}, embedding: {tied: false}, initialization: {std: 0.5}}",
                                    "model.yaml", settings)
                .model,
            vocabulary, rows, 8) {}

  Tensor parameter(const std::string& name) const { return parameter_named(reader_.store(), name).variable.value(); }
  // Returns the gradient that the last backward pass wrote.
  std::vector<double> gradient(const std::string& name) const {
    return values_of(gradient_named(reader_.store(), name));
  }
  ModelReader& reader() { return reader_; }

  // Nats of every target, position by position; all of the first row, then of the next.
  std::vector<double> nats(const Batch& batch) {
    DocumentNll nll;
    reader_.step(batch, &nll);
    std::vector<double> values;
    for (const auto& [place, value] : nll) values.push_back(value);
    return values;
  }

 private:
  ModelReader reader_;
};

// Rows of one document each, in which token t is (t + 1) mod 7 and predicts the next one.
Batch counting(int64_t rows, int64_t length, int32_t first_position = 0) {
  Batch batch = one_segment(rows, length, std::vector<uint8_t>(static_cast<size_t>(rows), 1));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < length; ++t) {
      const auto i = static_cast<size_t>(batch.at(r, t));
      batch.tokens[i] = static_cast<int32_t>((t + 1) % kVocabulary);
      batch.targets[i] = static_cast<int32_t>((t + 2) % kVocabulary);
      batch.position[i] = first_position + static_cast<int32_t>(t);
      batch.document[i] = r;
      batch.loss_mask[i] = 1;
    }
  }
  batch.target_count = rows * length;
  return batch;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-13) << i;
}

// A token at position p reads its embedding and the learned factor times [sin(p w) | cos(p w)].
TEST(InputSinusoid, AddsThePositionInTheDocument) {
  Model with({"model.embedding.sinusoid=true", "model.embedding.sinusoid_base=100"});
  Model without({});
  EXPECT_EQ(with.nats(counting(1, 1, 20)), without.nats(counting(1, 1)));  // the factor begins at 0
  with.parameter("embedding.sinusoid").data<double>()[0] = 0.7;
  double* const row = without.parameter("embedding.weight").data<double>() + 6;  // of token 1
  for (int i = 0; i < 3; ++i) {
    const double angle = 20 * std::pow(100, -2.0 * i / 6);
    row[i] += 0.7 * std::sin(angle);
    row[3 + i] += 0.7 * std::cos(angle);
  }
  EXPECT_NEAR(with.nats(counting(1, 1, 20))[0], without.nats(counting(1, 1))[0], 1e-13);
  EXPECT_GT(std::abs(with.nats(counting(1, 1, 21))[0] - without.nats(counting(1, 1))[0]), 1e-3);
}

// A token reads the vector of its place among those that the row holds of its document.
TEST(LearnedPositions, CountInTheSubsequence) {
  Model with({"model.embedding.learned_positions=8", "data.subsequence=8"});
  Model without({});
  double* const table = with.parameter("embedding.positions").data<double>();
  const std::vector<double> second(table + 6, table + 12);
  // Positions of a document that began in an earlier subsequence begin anew.
  const Batch batch = counting(1, 2, 20);
  std::fill_n(table, 6, 0);
  std::fill_n(table + 6, 6, 0);
  expect_near(with.nats(batch), without.nats(batch));
  std::copy(second.begin(), second.end(), table + 6);
  double* const row = without.parameter("embedding.weight").data<double>() + 12;  // of token 2
  for (size_t i = 0; i < 6; ++i) row[i] += second[i];
  expect_near(with.nats(batch), without.nats(batch));
  // A document that begins inside the row has positions of its own.
  Batch two = counting(1, 8);
  std::fill_n(two.segment.begin() + 4, 4, 1);
  std::fill_n(two.document.begin() + 4, 4, 1);
  Batch one = counting(1, 4);
  std::copy_n(two.tokens.begin() + 4, 4, one.tokens.begin());
  std::copy_n(two.targets.begin() + 4, 4, one.targets.begin());
  const std::vector<double> both = with.reader().nll(two);
  expect_near({both.begin() + 4, both.end()}, with.reader().nll(one));
}

// Rows that belong to no token take part of the probability and are never chosen.
TEST(Vocabulary, RowsWithoutATokenStayInTheSoftmax) {
  for (const char* embedding : {"model.embedding={tied: false, output_bias: true}", "model.embedding={tied: true}"}) {
    Model padded({embedding, "model.vocabulary=10"}, 2);
    Model larger({embedding}, 2, 10);
    ASSERT_EQ(padded.parameter("embedding.weight").shape(), (Shape{10, 6}));
    const Batch batch = counting(2, 8);
    EXPECT_EQ(padded.reader().nll(batch), larger.reader().nll(batch));
    const std::vector<double> logits = values_of(padded.reader().next_logits(batch, 5));
    const std::vector<double> all = values_of(larger.reader().next_logits(batch, 5));
    ASSERT_EQ(logits.size(), 14U);
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_EQ(logits[i], all[i / 7 * 10 + i % 7]);
  }
  EXPECT_ERROR(Model({"model.vocabulary=6"}), ErrorKind::config, "6 rows are less than the 7 ids");
}

// Ids of inserted tokens follow those of the tokenizer; their rows follow all of the model's.
TEST(Vocabulary, InsertedTokensStandBehindAllRows) {
  const std::string inserted = inserting({.period = 3, .ids = 2, .predicted = true});
  Model padded({inserted, "model.vocabulary=10"}, 2);
  Model larger({inserted}, 2, 10);
  const auto batch = [](int32_t first) {
    Batch made = counting(2, 8);
    for (int64_t row = 0; row < 2; ++row) {
      const auto at = static_cast<size_t>(made.at(row, 3));
      made.tokens[at] = first;
      made.targets[at - 1] = first + 1;
      made.loss_mask[at - 1] = 0;
      --made.target_count;
    }
    return made;
  };
  EXPECT_EQ(padded.reader().nll(batch(kVocabulary)), larger.reader().nll(batch(10)));
  EXPECT_EQ(padded.reader().loss(batch(kVocabulary)), larger.reader().loss(batch(10)));
}

TEST(OutputBias, IsAddedToLogitsAndScaledWithThem) {
  Model with({"model.embedding.output_bias=true", "model.embedding.output_scale=0.5"});
  Model without({"model.embedding.output_scale=0.5"});
  double* const bias = with.parameter("head.bias").data<double>();
  for (int v = 0; v < kVocabulary; ++v) bias[v] = 0.3 * v - 1;
  // The logits of the first position, but for a constant, from the nats of every target.
  std::vector<double> logits;
  Batch batch = counting(1, 1);
  for (int32_t v = 0; v < kVocabulary; ++v) {
    batch.targets[0] = v;
    logits.push_back(-without.nats(batch)[0]);
  }
  double sum = 0;
  for (int v = 0; v < kVocabulary; ++v) sum += std::exp(logits[static_cast<size_t>(v)] + 0.5 * bias[v]);
  for (int32_t v = 0; v < kVocabulary; ++v) {
    batch.targets[0] = v;
    const double expected = std::log(sum) - logits[static_cast<size_t>(v)] - 0.5 * bias[v];
    EXPECT_NEAR(with.nats(batch)[0], expected, 1e-13);
  }
}

// Generation samples from the logits of which the loss is made.
TEST(OutputBias, IsInTheLogitsOfGeneration) {
  Model model({"model.embedding.output_bias=true", "model.embedding.output_scale=0.5"});
  double* const bias = model.parameter("head.bias").data<double>();
  for (int v = 0; v < kVocabulary; ++v) bias[v] = 0.9 * v - 1;
  Batch batch = counting(1, 1);
  const std::vector<double> logits = values_of(model.reader().next_logits(batch, 0));
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (int32_t v = 0; v < kVocabulary; ++v) {
    batch.targets[0] = v;
    EXPECT_NEAR(model.nats(batch)[0], std::log(sum) - logits[static_cast<size_t>(v)], 1e-13);
  }
}

void put_rows(const Tensor& from, const Tensor& to, int64_t row) {
  std::copy_n(from.data<double>(), from.numel(), to.data<double>() + row * to.dim(1));
}

// Sums of some ten terms near 1, in another order.
// Like a larger vocabulary whose last ids can never come next: their logits are so low that the model gives them the
// probability 0.
TEST(InsertedTokens, AreReadLikeTokensAndNeverPredicted) {
  Model with_inserted({inserting({.period = 3, .ids = 2})}, 2);
  Model larger({"model.embedding.output_bias=true"}, 2, kVocabulary + 2);
  const Tensor inserted = with_inserted.parameter("embedding.inserted");
  ASSERT_EQ(inserted.shape(), (Shape{2, 6}));
  for (int64_t i = 1; i < inserted.numel(); ++i) EXPECT_NE(inserted.data<double>()[i], inserted.data<double>()[i - 1]);
  put_rows(with_inserted.parameter("embedding.weight"), larger.parameter("embedding.weight"), 0);
  put_rows(inserted, larger.parameter("embedding.weight"), kVocabulary);
  put_rows(with_inserted.parameter("head.weight"), larger.parameter("head.weight"), 0);
  for (int v = 0; v < 2; ++v) larger.parameter("head.bias").data<double>()[kVocabulary + v] = -1e5;

  Batch batch = counting(2, 8);
  for (const int64_t t : {3, 6}) {
    for (int64_t row = 0; row < 2; ++row) {
      const auto i = static_cast<size_t>(batch.at(row, t));
      batch.tokens[i] = static_cast<int32_t>(kVocabulary + (t == 3 ? 0 : 1));
      batch.targets[i] = 0;
      batch.loss_mask[i] = 0;
      --batch.target_count;
    }
  }
  expect_near(with_inserted.nats(batch), larger.nats(batch));
  const Tensor logits = with_inserted.reader().next_logits(batch, 4);
  EXPECT_EQ(logits.shape(), (Shape{2, kVocabulary}));
  const std::vector<double> all = values_of(larger.reader().next_logits(batch, 4));
  const auto second = all.begin() + kVocabulary + 2;
  expect_near(values_of(logits.slice(0, 1, 2)), {second, second + kVocabulary});

  with_inserted.reader().gradient(batch);
  larger.reader().gradient(batch);
  std::vector<double> both = with_inserted.gradient("embedding.weight");
  const std::vector<double> own = with_inserted.gradient("embedding.inserted");
  for (const double value : own) EXPECT_NE(value, 0);
  both.insert(both.end(), own.begin(), own.end());
  expect_near(both, larger.gradient("embedding.weight"));
}

// Those that are predicted are tokens of a larger vocabulary in every way, in the loss.
TEST(InsertedTokens, ArePredictedLikeTokens) {
  for (const std::string embedding :
       {"model.embedding={tied: false, output_bias: true, output_scale: 0.7}", "model.embedding={tied: true}"}) {
    SCOPED_TRACE(embedding);
    Model with_inserted({embedding, inserting({.period = 3, .ids = 2, .predicted = true})}, 2);
    Model larger({embedding}, 2, kVocabulary + 2);
    const bool tied = embedding.ends_with("{tied: true}");
    std::vector<std::pair<std::string, std::string>> tables{{"embedding.weight", "embedding.inserted"}};
    if (!tied) tables.insert(tables.end(), {{"head.weight", "head.inserted"}, {"head.bias", "head.inserted_bias"}});
    for (const auto& [name, inserted] : tables) {
      const Tensor to = larger.parameter(name);
      const Tensor from = with_inserted.parameter(name), more = with_inserted.parameter(inserted);
      std::copy_n(from.data<double>(), from.numel(), to.data<double>());
      std::copy_n(more.data<double>(), more.numel(), to.data<double>() + from.numel());
    }
    Batch batch = counting(2, 8);
    Batch all = batch;
    for (const int64_t t : {3, 6}) {
      for (int64_t row = 0; row < 2; ++row) {
        const auto i = static_cast<size_t>(batch.at(row, t));
        const auto id = static_cast<int32_t>(kVocabulary + (t == 3 ? 0 : 1));
        all.tokens[i] = batch.tokens[i] = id;
        all.targets[i - 1] = batch.targets[i - 1] = id;
        batch.loss_mask[i - 1] = 0;
        --batch.target_count;
      }
    }
    std::vector<double> of_text = larger.nats(all);
    for (const int i : {13, 10, 5, 2}) of_text.erase(of_text.begin() + i);
    expect_near(with_inserted.nats(batch), of_text);
    EXPECT_NEAR(with_inserted.reader().loss(batch), larger.reader().loss(all), 1e-12);
    EXPECT_EQ(with_inserted.reader().next_logits(batch, 2).shape(), (Shape{2, kVocabulary}));
    with_inserted.reader().gradient(batch);
    larger.reader().gradient(all);
    for (const auto& [name, inserted] : tables) {
      std::vector<double> both = with_inserted.gradient(name);
      const std::vector<double> own = with_inserted.gradient(inserted);
      for (const double value : own) EXPECT_NE(value, 0) << inserted;
      both.insert(both.end(), own.begin(), own.end());
      expect_near(both, larger.gradient(name));
    }
  }
}

// The reported loss is that of the text.
TEST(InsertedTokens, HaveATermOfTheirOwn) {
  const RunConfig config = parse_config<RunConfig>(
      "model: {width: 6, heads: 2, layers: 1, position: {kind: none}, mlp: {kind: relu, hidden: 5}}", "model.yaml",
      {inserting({.period = 3, .ids = 2, .predicted = true})});
  ParameterStore store;
  const Network network(store, config.model, kVocabulary, DType::f64);
  StatePool state(network.declared.state, 1, 8, DType::f64, test_device());
  store.allocate(DType::f64, test_device(), 1);
  Batch batch = counting(1, 8);
  for (const size_t i : {3, 6}) {
    batch.targets[i - 1] = batch.tokens[i] = static_cast<int32_t>(kVocabulary + (i == 3 ? 0 : 1));
    batch.loss_mask[i - 1] = 0;
    --batch.target_count;
  }
  state.begin_step(batch);
  Tape tape(false);
  const StateView view = state.view(0, 1);
  const LossTerms loss = network.model.loss({.tape = tape, .batch = batch, .state = view});
  const std::vector<double> nll = values_of(loss.nll);
  const double inserted = nll[2] + nll[5];
  ASSERT_EQ(loss.terms.size(), 2U);
  EXPECT_EQ(loss.terms[0].count, 6);
  EXPECT_NEAR(values_of(loss.terms[0].sum.value())[0], std::accumulate(nll.begin(), nll.end(), -inserted), 1e-12);
  EXPECT_EQ(loss.terms[1].name, "inserted_nll");
  EXPECT_EQ(loss.terms[1].count, 2);
  EXPECT_NEAR(values_of(loss.terms[1].sum.value())[0], inserted, 1e-12);
  EXPECT_GT(inserted, 1);
}

// A row keeps all that a layer adds, divided by the probability of being kept, or nothing of it.
TEST(LayerDrop, KeepsOrDropsWhatALayerAddsToARow) {
  constexpr int64_t kRows = 16;
  Model dropping({"model.dropout.layer=0.25"}, kRows);
  Model kept({}, kRows);
  Model dropped({}, kRows);
  for (const char* name : {"blocks.0.attention.out.weight", "blocks.0.mlp.down.weight"}) {
    for (int64_t i = 0; i < kept.parameter(name).numel(); ++i) {
      kept.parameter(name).data<double>()[i] /= 0.75;
      dropped.parameter(name).data<double>()[i] = 0;
    }
  }
  dropping.reader().training = true;
  const std::vector<double> seen = dropping.nats(counting(kRows, 4));
  const std::vector<double> whole = kept.nats(counting(kRows, 4));
  const std::vector<double> nothing = dropped.nats(counting(kRows, 4));
  int rows_kept = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    const auto first = static_cast<size_t>(4 * r);
    const bool is_kept = std::abs(seen[first] - whole[first]) < 1e-9;
    const std::vector<double>& expected = is_kept ? whole : nothing;
    for (size_t i = first; i < first + 4; ++i) EXPECT_NEAR(seen[i], expected[i], 1e-12) << "row " << r;
    rows_kept += is_kept ? 1 : 0;
  }
  EXPECT_GE(rows_kept, 6);
  EXPECT_LE(rows_kept, 15);
  dropping.reader().training = false;
  EXPECT_EQ(dropping.nats(counting(kRows, 4)), Model({}, kRows).nats(counting(kRows, 4)));
}

}  // namespace
}  // namespace quire::test
