#include <map>
#include <set>
#include <tuple>

#include "layers/mechanism/mechanism_registry.h"
#include "layers/model/model_mechanisms.h"
#include "tests/support/compare.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/model_reader.h"
#include "tests/support/saved_state.h"
#include "tests/support/test_device.h"

namespace quire::test {

namespace {

constexpr int32_t kVocabulary = 11;
constexpr int64_t kLength = 7;

// Lengths for rows of 7 positions: a document over three steps; one that is followed by padding (or another document);
// one that ends inside the second step; one that fills a row exactly; a row that runs out.
const std::vector<std::vector<int64_t>> kLengths{{20}, {5, 16}, {12, 6}, {7, 3, 9}, {4}};
constexpr int64_t kDocuments = 9;
constexpr int64_t kCuts[] = {12, 6, 4, 1};  // of 24 positions

Pack pack() {
  return MechanismTest::GetParam().pack;
}

// Returns batches in the form that the case's model reads.
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

// A promise is kept exactly where it is given.
void expect_as_promised(const std::string& promise, bool promised, bool kept, const std::string& seen) {
  EXPECT_TRUE(kept || !promised) << "the descriptor promises " << promise << ", which is not kept: " << seen;
  EXPECT_TRUE(promised || !kept) << promise << " is kept and not promised: let the promises of the descriptor say "
                                 << promise << " = true";
}

// The batch with other text behind position t of each row; the target at t is the first token of it.
Batch with_other_text_behind(Batch batch, const Batch& other, int64_t t) {
  for (int64_t row = 0; row < batch.rows; ++row) {
    for (int64_t later = t; later < batch.length; ++later) {
      const auto cell = static_cast<size_t>(batch.at(row, later));
      if (later > t) batch.tokens[cell] = other.tokens[cell];
      batch.targets[cell] = other.targets[cell];
    }
  }
  return batch;
}

// Memories and stacks are also read in the last layer of a model whose other parts do not depend on the cut, so that it
// is they that show what the cut changes.
bool has_memory_or_stack(const ModelConfig& model) {
  return !model.memory.empty() || model.stack.mechanism.kind != mechanisms(Role::stack).front()->kind;
}

ModelConfig with_split_invariant_mixers() {
  std::vector<std::string> settings = MechanismTest::GetParam().mechanism.settings;
  settings.emplace_back("model.layer_overrides=[]");
  settings.emplace_back("model.attention={kind: softmax, softmax: {window: 6, carry: {kind: kv}}}");
  ModelConfig model = mechanism_config(settings).model;
  for (MemoryConfig& memory : model.memory) memory.layers = {-1};
  return model;
}

}  // namespace

// Central differences with carried state held constant. Rounding: 1e-16 * loss (about 100) / step; truncation: step^2
// times a third derivative of the same size as the gradient.
TEST_P(MechanismReading, NumericGradient) {
  constexpr double kStep = 1e-5;
  constexpr double kTolerance = 2e-7;
  const bool promised = promises_of(config().model).exact_gradient;
  ModelReader reader = make_reader(config());
  reader.training = true;
  const std::vector<Batch> batches = example_batches();
  std::set<std::string> learns;  // parameters with a gradient in one of the steps
  double worst = 0;
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
        const double error = std::abs(analytic - numeric) / std::max(1.0, std::abs(numeric));
        worst = std::max(worst, error);
        EXPECT_TRUE(error <= kTolerance || !promised)
            << entry.name << "[" << element << "], step " << step + 2 << ": " << analytic << ", not " << numeric;
      }
    }
  }
  for (const ParameterStore::Entry& entry : reader.store().entries()) {
    EXPECT_TRUE(learns.contains(entry.name) || !promised) << entry.name << " has no gradient";
  }
  expect_as_promised("exact_gradient", promised, worst <= kTolerance, "see above");
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

// Carried state reaches the next step of the same document, and nothing else.
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

// Slots of logs that cannot be read may hold any numbers, and codes any code: a row that goes back to an earlier state
// restores the others only.
TEST_P(MechanismReading, SlotsThatCannotBeReadDoNotMatter) {
  const std::vector<Batch> batches = example_batches();
  ModelReader reader = make_reader(config());
  reader.step(batches[0]);
  ModelReader other = make_reader(config());
  for (const NamedTensor& state : other.state().tensors()) {
    if (!state.name.ends_with(".ring") || state.tensor.dtype() == DType::i32) continue;
    const std::vector<std::byte> rubbish(static_cast<size_t>(state.tensor.bytes()), std::byte{0x41});
    state.tensor.upload(rubbish.data(), state.tensor.numel());
  }
  load_state(other.state(), saved_state(reader.state(), RowExtent::readable));
  EXPECT_EQ(reader.carried(), other.carried());
  for (size_t step = 1; step < batches.size(); ++step) {
    DocumentNll a, b;
    reader.step(batches[step], &a);
    other.step(batches[step], &b);
    EXPECT_EQ(a, b) << "step " << step + 1;
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
    const auto learned = reader.learned(batches[step], false);
    EXPECT_EQ(learned, other.learned(filled[step], false)) << "step " << step + 1;
    EXPECT_EQ(learned, reader.learned(batches[step], true)) << "a recomputation is learned from again";
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

// Exactly: what a mask hides adds a zero to every sum. In training (dropout, losses of its own) and in evaluation.
TEST_P(MechanismReading, LaterTokensChangeNoEarlierLogit) {
  const std::vector<Batch> batches = example_batches();
  const std::vector<Batch> others = example_batches(2);
  std::string changed;
  ModelReader reader = make_reader(config());
  for (size_t step = 0; step < batches.size(); ++step) {
    const Batch& batch = batches[step];
    for (int64_t t = 0; t + 1 < batch.length; ++t) {
      const Batch other = with_other_text_behind(batch, others[step], t);
      const auto note = [&](const char* what) {
        if (changed.empty()) changed = what + (" at t = " + std::to_string(t)) + " of step " + std::to_string(step + 1);
      };
      if (!same_bits(reader.next_logits(batch, t), reader.next_logits(other, t))) note("logits in evaluation");
      reader.training = true;
      const std::vector<double> nll = reader.nll(batch);
      const std::vector<double> other_nll = reader.nll(other);
      reader.training = false;
      for (int64_t row = 0; row < batch.rows; ++row) {
        const auto begin = batch.at(row, 0);
        if (!std::equal(nll.begin() + begin, nll.begin() + begin + t, other_nll.begin() + begin)) {
          note("nats in training before those");
        }
      }
    }
    reader.step(batch);
  }
  expect_as_promised("causal", promises_of(config().model).causal, changed.empty(), "later tokens change " + changed);
}

// In f64 the order of summation changes nats by about 1e-15; 1e-10 leaves room for depth.
TEST_P(MechanismSplit, AnyCutReadsTheSameWherePromised) {
  const auto documents = random_documents({{24}, {17}}, kVocabulary, 1);
  std::vector<ModelConfig> models{config().model};
  if (has_memory_or_stack(models[0])) models.push_back(with_split_invariant_mixers());
  for (const ModelConfig& model : models) {
    SCOPED_TRACE(&model == models.data() ? "" : "in a model that the cut does not change otherwise");
    std::vector<double> first;
    double largest = 0;
    for (const int64_t length : kCuts) {
      ModelReader reader(model, kVocabulary, 2, length);
      const std::vector<double> nll = all_values(reader.read(batches_of(documents, length)));
      if (first.empty()) first = nll;
      largest = std::max(largest, largest_difference(nll, first));
    }
    expect_as_promised("split_invariant", promises_of(model).split_invariant, largest < 1e-10,
                       "the cut changes nats by " + std::to_string(largest));
  }
}

// Whatever is read of a state, the state itself is that of the tokens read so far, the last one included: no promise is
// needed. In the first block, which sees the same however a document is cut, and in the model for memories and stacks.
TEST_P(MechanismSplit, AnyCutLeavesTheSameState) {
  const auto documents = random_documents({{30}, {41}}, kVocabulary, 1);  // of which 24 positions are read
  const auto check = [&](const ModelConfig& model, const std::string& prefix) {
    std::map<std::string, std::vector<double>> first;
    for (const int64_t length : kCuts) {
      ModelReader reader(model, kVocabulary, 2, length);
      std::vector<Batch> batches = batches_of(documents, length);
      batches.resize(static_cast<size_t>(24 / length));
      reader.read(batches);
      const auto carried = reader.carried();
      if (first.empty()) first = carried;
      for (const auto& [name, values] : carried) {
        if (!name.starts_with(prefix)) continue;
        EXPECT_TRUE(values == first.at(name) || largest_difference(values, first.at(name)) < 1e-10)
            << name << " depends on the cut into subsequences, T = " << length;
      }
    }
  };
  const ModelConfig model = config().model;
  check(model, "blocks.0.");
  if (!has_memory_or_stack(model)) return;
  const ModelConfig other = with_split_invariant_mixers();
  // The inputs of upper layers of a stack may depend on the cut, and so may their state.
  if (!model.memory.empty() || promises_of(other).split_invariant) check(other, "");
}

// Reads as generation does: a long prompt, then token by token with the same state.
TEST_P(MechanismSplit, TheCutMayChangeInsideADocument) {
  if (!promises_of(config().model).split_invariant) GTEST_SKIP() << "its logits depend on the cut";
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

// With frozen weights, carried inputs give the same keys and values as carried keys and values.
TEST_P(MechanismCaches, HiddenStatesAndKeysReadTheSame) {
  const std::vector<Batch> batches = example_batches();
  ModelReader reader = make_reader(config());
  ModelReader other = make_reader(config(GetParam().mechanism.other_cache));
  EXPECT_LT(largest_difference(all_values(reader.read(batches)), all_values(other.read(batches))), 1e-10);
}

// Reads as many tokens as the promise covers, in pieces, and compares with reading all at once.
TEST_P(MechanismReading, AttendsToAllWherePromised) {
  const RunConfig all = config();
  const int64_t tokens = std::min<int64_t>(promises_of(all.model).full_attention, 12);
  if (tokens < 2) GTEST_SKIP() << "its attention is not promised to be full";
  const auto document = random_documents({{tokens - 1}}, kVocabulary, 8);
  ModelReader pieces(all.model, kVocabulary, 1, 2);
  ModelReader whole(all.model, kVocabulary, 1, tokens);
  const DocumentNll expected = whole.read(cut(document, tokens, Pack::pad));
  for (const auto& [place, nll] : pieces.read(cut(document, 2, Pack::pad))) EXPECT_NEAR(nll, expected.at(place), 1e-10);
}

// Every query reads spans of its own document that lie before it, with weights that sum to 1.
TEST_P(MechanismReading, RetrievesWhatLiesBeforeTheQuery) {
  ModelReader reader = make_reader(config());
  for (const Batch& batch : example_batches()) {
    Retrievals retrieved;
    reader.retrieved = &retrieved;
    reader.step(batch);
    for (const auto& [name, all] : retrieved) {
      EXPECT_TRUE(retrieves(config().model)) << name;
      std::map<std::tuple<int64_t, int64_t, int64_t>, double> weights;
      std::map<std::tuple<int64_t, int64_t, int64_t>, double> local;
      for (const Retrieval& one : all) {
        const auto cell = static_cast<size_t>(batch.at(one.row, one.t));
        EXPECT_TRUE(batch.has_token(static_cast<int64_t>(cell))) << name;
        EXPECT_LT(one.begin, one.end) << name;
        EXPECT_GE(one.begin, 0) << name;
        EXPECT_LE(one.end, batch.position[cell]) << name;
        weights[{one.row, one.t, one.head}] += one.weight;
        EXPECT_GE(one.local, 0) << name;
        EXPECT_LE(one.local, 1) << name;
        EXPECT_EQ(local.insert({{one.row, one.t, one.head}, one.local}).first->second, one.local) << name;
      }
      for (const auto& [query, weight] : weights) EXPECT_NEAR(weight, 1, 1e-9) << name;
    }
  }
}

}  // namespace quire::test
