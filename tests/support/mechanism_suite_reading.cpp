#include <map>
#include <set>
#include <tuple>

#include "layers/model_mechanisms.h"
#include "tests/support/compare.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/model_reader.h"
#include "tests/support/test_device.h"

namespace quire::test {

namespace {

constexpr int32_t kVocabulary = 11;
constexpr int64_t kLength = 7;

// With rows of 7 positions: a document over three steps; one that ends with padding (or another document) behind it;
// one that ends inside the second step; one that fills a row exactly; a row that runs out.
const std::vector<std::vector<int64_t>> kLengths{{20}, {5, 16}, {12, 6}, {7, 3, 9}, {4}};
constexpr int64_t kDocuments = 9;

Pack pack() {
  return MechanismTest::GetParam().pack == PackChoice::pad ? Pack::pad : Pack::concat;
}

// As the case's model reads them.
std::vector<Batch> batches_of(const std::vector<std::vector<Document>>& rows, int64_t length) {
  const ModelConfig model = mechanism_config(MechanismTest::GetParam().mechanism.settings).model;
  return with_inserted(cut(rows, length, pack(), alignment_of(model)), insertion_of(model), kVocabulary);
}

std::vector<Batch> example_batches(uint32_t seed = 1) {
  return batches_of(random_documents(kLengths, kVocabulary, seed), kLength);
}

ModelReader make_reader(const RunConfig& config) {
  return {config.model, kVocabulary, static_cast<int64_t>(kLengths.size()), kLength};
}

// Nats of one document in the order of its positions.
std::vector<double> of_document(const DocumentNll& nll, int64_t document) {
  std::vector<double> values;
  for (const auto& [key, value] : nll) {
    if (key.first == document) values.push_back(value);
  }
  return values;
}

std::vector<double> all_values(const DocumentNll& nll) {
  std::vector<double> values;
  for (const auto& [key, value] : nll) values.push_back(value);
  return values;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Documents other than `kept` get other ids; where they begin and end stays.
std::vector<Batch> with_other_documents(std::vector<Batch> batches, int64_t kept) {
  const std::vector<Batch> others = example_batches(2);
  for (size_t step = 0; step < batches.size(); ++step) {
    for (size_t i = 0; i < batches[step].tokens.size(); ++i) {
      if (batches[step].document[i] == kept) continue;
      batches[step].tokens[i] = others[step].tokens[i];
      batches[step].targets[i] = others[step].targets[i];
    }
  }
  return batches;
}

std::vector<Batch> with_filled_padding(std::vector<Batch> batches) {
  RandomTensors random(3);
  for (Batch& batch : batches) {
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.segment[i] >= 0) continue;
      batch.tokens[i] = static_cast<int32_t>(random.below(kVocabulary));
      batch.targets[i] = static_cast<int32_t>(random.below(kVocabulary));
      batch.position[i] = static_cast<int32_t>(random.below(100));
    }
  }
  return batches;
}

// The element with the largest gradient and two others.
std::vector<int64_t> sample(const std::vector<double>& gradient, RandomTensors& random) {
  int64_t largest = 0;
  const auto count = static_cast<int64_t>(gradient.size());
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(gradient[static_cast<size_t>(i)]) > std::abs(gradient[static_cast<size_t>(largest)])) largest = i;
  }
  return {largest, random.below(count), random.below(count)};
}

}  // namespace

// Central differences with carried state held constant. Rounding: 1e-16 * loss (about 100) / step; truncation: step^2
// times a third derivative of the same size as the gradient.
TEST_P(MechanismReading, NumericGradient) {
  if (!GetParam().mechanism.exact_gradient) GTEST_SKIP() << "its gradient is not that of its value";
  constexpr double kStep = 1e-5;
  constexpr double kTolerance = 2e-7;
  ModelReader reader = make_reader(config());
  reader.training = true;
  const std::vector<Batch> batches = example_batches();
  std::set<std::string> learns;  // parameters with a gradient in one of the steps
  for (size_t step = 0; step < 2; ++step) {
    reader.step(batches[step]);
    const Batch& batch = batches[step + 1];
    reader.gradient(batch);
    RandomTensors random(4);
    for (const ParameterStore::Entry& entry : reader.store().entries()) {
      const std::vector<double> gradient = ParameterStore::slice(reader.store().gradients(), entry).to_vector<double>();
      const std::vector<int64_t> elements = sample(gradient, random);
      if (gradient[static_cast<size_t>(elements[0])] != 0) learns.insert(entry.name);
      for (const int64_t element : elements) {
        const Tensor value = entry.variable.value().reshape({entry.shape.numel()}).slice(0, element, element + 1);
        const double before = value.to_vector<double>()[0];
        const auto loss_at = [&](double x) {
          value.upload(&x, 1);
          return reader.loss(batch);
        };
        const double above = loss_at(before + kStep);
        const double below = loss_at(before - kStep);
        value.upload(&before, 1);
        const double analytic = gradient[static_cast<size_t>(element)];
        const double numeric = (above - below) / (2 * kStep);
        EXPECT_NEAR(analytic, numeric, kTolerance * std::max(1.0, std::abs(numeric)))
            << entry.name << "[" << element << "], step " << step + 2;
      }
    }
  }
  for (const ParameterStore::Entry& entry : reader.store().entries()) {
    EXPECT_TRUE(learns.contains(entry.name)) << entry.name << " has no gradient";
  }
}

// Every document has the nats it has when nothing else was ever read: in fresh state, at the same places of the rows,
// with padding for all others. In a row that holds one document at a time the difference is exactly 0; in a row with
// several, where the others lie decides how attention groups its sums, and the last bits may differ.
TEST_P(MechanismReading, DocumentsBeginWithoutState) {
  const double tolerance = pack() == Pack::pad ? 0.0 : 1e-13;
  const std::vector<Batch> batches = example_batches();
  ModelReader reader = make_reader(config());
  const DocumentNll together = reader.read(batches);
  for (int64_t document = 0; document < kDocuments; ++document) {
    ModelReader fresh = make_reader(config());
    const DocumentNll alone = fresh.read(only(batches, [&](int64_t d) { return d == document; }));
    EXPECT_LE(largest_difference(of_document(together, document), all_values(alone)), tolerance)
        << "document " << document;
  }
}

TEST_P(MechanismReading, DocumentsAreIsolated) {
  const std::vector<Batch> batches = example_batches();
  ModelReader reader = make_reader(config());
  const DocumentNll before = reader.read(batches);
  for (int64_t document = 0; document < kDocuments; ++document) {
    ModelReader other = make_reader(config());
    const DocumentNll after = other.read(with_other_documents(batches, document));
    EXPECT_EQ(largest_difference(of_document(before, document), of_document(after, document)), 0.0)
        << "document " << document;
    EXPECT_NE(largest_difference(all_values(before), all_values(after)), 0.0) << "nothing was changed";
  }
}

// What a model carries reaches the next step of the same document, and nothing else does.
TEST_P(MechanismReading, StateReachesTheNextStep) {
  const std::vector<Batch> batches = example_batches();
  ModelReader reader = make_reader(config());
  ModelReader other = make_reader(config());
  reader.step(batches[0]);
  other.step(with_other_documents(batches, -2)[0]);
  DocumentNll a;
  DocumentNll b;
  reader.step(batches[1], &a);
  other.step(batches[1], &b);
  const double difference = largest_difference(of_document(a, 0), of_document(b, 0));
  if (reader.carries()) {
    EXPECT_GT(difference, 1e-6);
  } else {
    EXPECT_EQ(difference, 0.0);
  }
}

TEST_P(MechanismReading, PaddingIsNeitherReadNorWritten) {
  const std::vector<Batch> batches = example_batches();
  const std::vector<Batch> filled = with_filled_padding(batches);
  ModelReader reader = make_reader(config());
  ModelReader other = make_reader(config());
  for (size_t step = 0; step < batches.size(); ++step) {
    reader.gradient(batches[step]);
    other.gradient(filled[step]);
    // A GPU groups the sums of an embedding's gradient by all tokens there are, those of padding among them.
    EXPECT_LE(largest_difference(reader.store().gradients().to_vector<double>(),
                                 other.store().gradients().to_vector<double>()),
              test_device() == kCpu ? 0.0 : 1e-13);
    DocumentNll a;
    DocumentNll b;
    reader.step(batches[step], &a);
    other.step(filled[step], &b);
    EXPECT_EQ(a, b) << "step " << step + 1;
    const std::vector<NamedTensor> state = reader.state().tensors();
    const std::vector<NamedTensor> other_state = other.state().tensors();
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(same_bits(state[i].tensor, other_state[i].tensor)) << state[i].name << ", step " << step + 1;
    }
  }
}

// In f64 the order of summation changes nats by about 1e-15; 1e-10 leaves room for depth.
TEST_P(MechanismSplit, AnyCutReadsTheSame) {
  const auto documents = random_documents({{24}, {17}}, kVocabulary, 1);
  const ModelConfig model = config().model;
  DocumentNll first;
  for (const int64_t length : {12, 6, 4, 1}) {
    ModelReader reader(model, kVocabulary, 2, length);
    const DocumentNll nll = reader.read(batches_of(documents, length));
    if (first.empty()) first = nll;
    EXPECT_LT(largest_difference(all_values(nll), all_values(first)), 1e-10) << "T = " << length;
  }
}

// As generation does: a long prompt, then token by token with the same state.
TEST_P(MechanismSplit, TheCutMayChangeInsideADocument) {
  const auto documents = random_documents({{24}, {17}}, kVocabulary, 1);
  const ModelConfig model = config().model;
  const std::vector<Batch> long_steps = batches_of(documents, 12);
  const std::vector<Batch> short_steps = batches_of(documents, 1);
  ModelReader reader(model, kVocabulary, 2, 12);
  ModelReader mixed(model, kVocabulary, 2, 12);
  std::vector<Batch> steps{long_steps[0]};
  steps.insert(steps.end(), short_steps.begin() + 12, short_steps.end());
  EXPECT_LT(largest_difference(all_values(mixed.read(steps)), all_values(reader.read(long_steps))), 1e-10);
}

// With frozen weights carried inputs give the keys and values that were carried.
TEST_P(MechanismCaches, HiddenStatesAndKeysReadTheSame) {
  const std::vector<Batch> batches = example_batches();
  ModelReader reader = make_reader(config());
  ModelReader other = make_reader(config(GetParam().mechanism.other_cache));
  EXPECT_LT(largest_difference(all_values(reader.read(batches)), all_values(other.read(batches))), 1e-10);
}

// What a descriptor says of a configuration is what the case expects, and so what the other tests have checked.
TEST_P(MechanismReading, KeepsThePromisesOfItsDescriptors) {
  const MechanismCase& mechanism = GetParam().mechanism;
  const RunConfig all = config();
  const Promises promises = promises_of(all.model);
  EXPECT_EQ(promises.exact_gradient, mechanism.exact_gradient);
  EXPECT_EQ(promises.split_invariant, mechanism.split_invariant);
  const int64_t tokens = std::min<int64_t>(promises.full_attention, 12);
  if (tokens < 2) return;
  // As many tokens as the promise covers, piece by piece: as if all were read at once.
  const auto document = random_documents({{tokens - 1}}, kVocabulary, 8);
  ModelReader pieces(all.model, kVocabulary, 1, 2);
  ModelReader whole(all.model, kVocabulary, 1, tokens);
  const DocumentNll wanted = whole.read(cut(document, tokens, Pack::pad));
  for (const auto& [place, nll] : pieces.read(cut(document, 2, Pack::pad))) EXPECT_NEAR(nll, wanted.at(place), 1e-10);
}

// Every query reads spans of its own document that lie before it, with weights that sum to 1.
TEST_P(MechanismReading, RetrievesWhatLiesBeforeTheQuery) {
  ModelReader reader = make_reader(config());
  for (const Batch& batch : example_batches()) {
    Retrievals retrieved;
    reader.retrieved = &retrieved;
    reader.step(batch);
    for (const auto& [name, all] : retrieved) {
      std::map<std::tuple<int64_t, int64_t, int64_t>, double> weights;
      for (const Retrieval& one : all) {
        const auto cell = static_cast<size_t>(batch.at(one.row, one.t));
        EXPECT_TRUE(batch.has_token(static_cast<int64_t>(cell))) << name;
        EXPECT_LT(one.begin, one.end) << name;
        EXPECT_GE(one.begin, 0) << name;
        EXPECT_LE(one.end, batch.position[cell]) << name;
        weights[{one.row, one.t, one.head}] += one.weight;
      }
      for (const auto& [query, weight] : weights) EXPECT_NEAR(weight, 1, 1e-9) << name;
    }
  }
}

}  // namespace quire::test
