// The kNN memory of a layer: against full attention, where it lies, what enters it and when, keys of earlier weights.
#include "layers/memory/knn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autograd/functions/basic.h"
#include "kernels/backend.h"
#include "layers/mixers/softmax_attention.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/parameters.h"
#include "tests/support/random_tensor.h"
#include "tests/support/saved_state.h"
#include "tests/support/state_logs.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

constexpr int64_t kWidth = 12;
constexpr int64_t kTokens = 5;

// One mixer that reads documents in pieces of kTokens.
class Reader {
 public:
  explicit Reader(const std::vector<std::string>& settings, DType dtype = DType::f64) : dtype_(dtype) {
    const RunConfig config = parse_config<RunConfig>(
        "model: {width: 12, heads: 2, layers: 1, position: {kind: none}, initialization: {std: 0.5}}", "model.yaml",
        settings);
    const LayerConfig layer = config.model.layer_configs()[0];
    mixer_ = std::make_unique<SoftmaxAttention>(Scope(store_, declared_, dtype),
                                                Place{config.model, layer, layer.attention.mechanism.options},
                                                Surroundings{.memories = config.model.memory});
    store_.allocate(dtype, kCpu, 3);
    pool_ = std::make_unique<StatePool>(declared_.state, 1, kTokens, dtype, kCpu);
  }

  // x [1, N, E], N a multiple of the piece; [N * E] results.
  std::vector<double> read(const Tensor& x, int64_t piece = kTokens) {
    std::vector<double> all;
    for (int64_t t = 0; t < x.dim(1); t += piece) {
      const std::vector<double> part = step(x.slice(1, t, t + piece).reshape({1, piece, kWidth}), t == 0);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::vector<double> step(const Tensor& x, bool begins = false) {
    Tape tape(false);
    return values_of(forward(tape, x, begins).value());
  }
  // With positions and segments of one's own.
  void step_with(const Tensor& x, const std::vector<int32_t>& segments, const std::vector<int32_t>& positions) {
    Batch batch = batch_of({segments}, {0});
    batch.position = positions;
    Tape tape(false);
    forward(tape, x, batch);
  }

  // The gradient of a step that results get as it is, by parameter.
  std::map<std::string, std::vector<double>> gradients(const Tensor& x, const Tensor& of_results) {
    store_.zero_gradients();
    Tape tape;
    const Variable y = forward(tape, x, false);
    tape.backward(y, of_results);
    std::map<std::string, std::vector<double>> all;
    for (const ParameterStore::Entry& entry : store_.entries()) {
      all[entry.name] = values_of(ParameterStore::slice(store_.gradients(), entry));
    }
    return all;
  }

  StateView state() { return pool_->view(0, 1); }
  StatePool& pool() { return *pool_; }
  const StateLayout& layout() const { return declared_.state; }
  LogId log(const std::string& name) const { return log_named(declared_.state, name); }
  // The entries of a log from the oldest on.
  std::vector<double> entries(const std::string& name) {
    const std::vector<int64_t> first{0};
    const std::vector<int64_t> count{length(name)};
    return values_of(state().gather(log(name), count[0], first, count));
  }
  int64_t length(const std::string& name) { return state().lengths(log(name).group)[0]; }
  Tensor parameter(const std::string& name) { return parameter_named(store_, name).variable.value(); }
  double told(const std::string& name) const {
    for (const auto& [key, value] : telemetry_) {
      if (key == name) return value;
    }
    ADD_FAILURE() << "nothing about " << name;
    return 0;
  }

 private:
  Variable forward(Tape& tape, const Tensor& x, bool begins) {
    Batch batch = one_segment(1, x.dim(1), {static_cast<uint8_t>(begins ? 1 : 0)});
    if (begins) read_ = 0;
    for (int32_t& position : batch.position) position = read_++;
    return forward(tape, x, batch);
  }

  Variable forward(Tape& tape, const Tensor& x, const Batch& batch) {
    pool_->begin_step(batch);
    telemetry_.clear();
    const Variable z = Variable::constant(converted(x, dtype_));
    const Variable y = (*mixer_)(
        {.tape = tape, .batch = batch, .state = pool_->view(0, 1), .training = true, .telemetry = &telemetry_},
        {z, nullptr});
    pool_->commit();
    return y;
  }

  DType dtype_;
  ParameterStore store_;
  Declarations declared_;
  std::unique_ptr<SoftmaxAttention> mixer_;
  std::unique_ptr<StatePool> pool_;
  Telemetry telemetry_;
  int32_t read_ = 0;  // tokens of the document
};

// The setting of one memory.
std::string knn(const std::string& options) {
  return "model.memory=[{kind: knn, layers: [0], " + options + "}]";
}

Tensor text(int64_t tokens, uint32_t seed = 1) {
  return RandomTensors(seed).normal({1, tokens, kWidth});
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Without positions it does not matter whether the past is a cache of keys or a memory that is retrieved whole.
TEST(KnnMemory, AllOfAWholeDocumentIsFullAttention) {
  const Tensor x = text(40);
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-13}, std::pair{DType::f32, 1e-5}}) {
    Reader full({"model.attention.softmax.carry={kind: kv, length: 40}"}, dtype);
    for (const char* key_heads : {"1", "2"}) {
      const std::string heads = std::string("model.key_heads=") + key_heads;
      Reader cached({"model.attention.softmax.carry={kind: kv, length: 40}", heads}, dtype);
      Reader retrieved({knn("carry: {length: 40}, top_k: 40, combine: joint"), heads}, dtype);
      EXPECT_LT(largest_difference(cached.read(x), retrieved.read(x)), tolerance) << key_heads;
    }
  }
}

const std::string kSmall = "carry: {length: 12}, top_k: 3, combine: ";

// With a gate that opens heads one by one.
std::vector<double> with_open_heads(const Tensor& x, double first, double second) {
  Reader reader({knn(kSmall + "gate")});
  const std::vector<double> biases{first, second};
  reader.parameter("memory.0.gate").upload(biases.data(), 2);
  return reader.read(x);
}

TEST(KnnMemory, AContentGateIsAShareOfEachHeadAndToken) {
  const Tensor x = text(20);
  Reader reader({knn(kSmall + "content_gate, gate: 0.3")});
  EXPECT_EQ(reader.read(x), Reader({knn(kSmall + "gate, gate: 0.3")}).read(x)) << "at first";
  const Tensor weight = reader.parameter("memory.0.content.weight");
  ASSERT_EQ(weight.shape(), (Shape{2, kWidth}));
  ops::scale(weight, RandomTensors(5).normal({2, kWidth}), 1);
  const std::vector<double> got = reader.read(x);

  // The projection behind is linear: what each head adds when it looks at memory instead.
  const std::vector<double> local = with_open_heads(x, -200, -200);
  const std::vector<std::vector<double>> opened{with_open_heads(x, 200, -200), with_open_heads(x, -200, 200)};
  std::vector<double> expected = local;
  std::vector<double> last_gates(2, 0.0);
  for (size_t t = 0; t < 20; ++t) {
    for (size_t h = 0; h < 2; ++h) {
      double logit = 0.3;
      for (size_t i = 0; i < kWidth; ++i) {
        logit += weight.data<double>()[h * kWidth + i] * x.data<double>()[t * kWidth + i];
      }
      const double gate = 1 / (1 + std::exp(-logit));
      for (size_t i = t * kWidth; i < (t + 1) * kWidth; ++i) expected[i] += gate * (opened[h][i] - local[i]);
      if (t >= 20 - kTokens) last_gates[h] += gate / kTokens;
    }
  }
  EXPECT_LT(largest_difference(got, expected), 1e-13);
  EXPECT_NEAR(reader.told("memory.0.gate.0"), last_gates[0], 1e-13);
  EXPECT_NEAR(reader.told("memory.0.gate.1"), last_gates[1], 1e-13);
  EXPECT_NEAR(reader.told("memory.0.share"), (last_gates[0] + last_gates[1]) / 2, 1e-13);
}

TEST(KnnMemory, StopForwardHasTheValueOfMemoryAndTheGradientOfLocalAttention) {
  const Tensor x = text(20);
  Reader stopped({knn(kSmall + "stop_forward")});
  EXPECT_LT(largest_difference(stopped.read(x), with_open_heads(x, 200, 200)), 1e-13);
  Reader local({});
  local.read(x);
  const Tensor next = text(kTokens, 2);
  const Tensor of_results = RandomTensors(3).normal({1, kTokens, kWidth});
  const auto got = stopped.gradients(next, of_results);
  const auto expected = local.gradients(next, of_results);
  for (const std::string name : {"query.weight", "key.weight", "value.weight"}) {
    EXPECT_EQ(got.at(name), expected.at(name)) << name;
  }
  EXPECT_GT(largest_difference(got.at("out.weight"), expected.at("out.weight")), 0.1);
}

TEST(KnnMemory, OfTheOldestNothingIsLeftWhenItIsFull) {
  Reader reader({knn("carry: {length: 12}, top_k: 2")});
  reader.read(text(25));
  EXPECT_EQ(reader.length("memory.0.keys"), 12);
  // Two of the third, all of the fourth and fifth step.
  const std::vector<LogRun> ages = reader.state().ages(reader.log("memory.0.keys").group, 0);
  ASSERT_EQ(ages.size(), 3U);
  EXPECT_EQ(ages[0].step, 3);
  EXPECT_EQ(ages[0].count, 2);
  EXPECT_EQ(ages[2].step, 1);
  EXPECT_EQ(ages[2].count, 5);
  EXPECT_EQ(reader.pool().bytes(), 2 * 12 * kWidth * 8 + 2 * 12 * kWidth * 8) << "keys, values and two probes";
}

TEST(KnnMemory, WhereItLiesDoesNotMatter) {
  const Tensor x = text(40);
  const auto at = [](const std::string& place) { return knn("top_k: 3, carry: {length: 17, place: " + place + "}"); };
  Reader device({at("device")});
  const std::vector<double> expected = device.read(x);
  for (const std::string place : {"host", "file"}) {
    Reader other({at(place)});
    EXPECT_EQ(other.read(x), expected) << place;
    EXPECT_EQ(values_of(other.state().stored_ring(other.log("memory.0.keys"))),
              values_of(device.state().stored_ring(device.log("memory.0.keys"))));
  }
}

TEST(KnnMemory, SmallerNumbersLoseLittle) {
  const Tensor x = text(40);
  const auto in = [](const std::string& dtype) {
    return knn("top_k: 40, combine: joint, carry: {length: 40, dtype: " + dtype + "}");
  };
  Reader whole({in("f32")}, DType::f32);
  const std::vector<double> expected = whole.read(x);
  double norm = 0;
  for (const double value : expected) norm += value * value;
  for (const auto& [dtype, bytes, max_error] :
       {std::tuple{"bf16", 2, 6e-3}, std::tuple{"int8", 1, 1.2e-2}, std::tuple{"fp8", 1, 4e-2}}) {
    Reader other({in(dtype)}, DType::f32);
    const std::vector<double> got = other.read(x);
    double error = 0;
    for (size_t i = 0; i < got.size(); ++i) error += (got[i] - expected[i]) * (got[i] - expected[i]);
    EXPECT_LT(std::sqrt(error / norm), max_error) << dtype;
    EXPECT_GT(error, 0);
    EXPECT_EQ(other.state().stored_ring(other.log("memory.0.keys")).bytes(), 40 * kWidth * bytes);
  }
}

TEST(KnnMemory, EvictedEntriesAreThoseTheCacheNoLongerHolds) {
  // Cache and memory hold every token once: attention to both is attention to all.
  const Tensor x = text(40);
  Reader full({"model.attention.softmax.carry={kind: kv, length: 40}"});
  Reader split({"model.attention.softmax.carry={kind: kv, length: 7}",
                knn("carry: {length: 40}, top_k: 40, combine: joint, write: evict")});
  EXPECT_LT(largest_difference(split.read(x), full.read(x)), 1e-13);
  EXPECT_EQ(split.length("memory.0.keys"), 33);
  EXPECT_EQ(split.length("cache.keys"), 7);
}

// Whatever the document is cut into, and counted from its beginning.
TEST(KnnMemory, WithAStrideEveryNthTokenEnters) {
  const Tensor x = text(40);
  const std::string memory = "combine: joint, top_k: 3, carry: ";
  Reader all({knn(memory + "{length: 40}")});
  all.read(x);
  for (const auto& [write, entered] : {std::pair{"produce", 40}, {"evict", 33}}) {
    for (const int64_t piece : {5, 4, 2, 1}) {
      SCOPED_TRACE(write + std::string(", ") + std::to_string(piece));
      Reader some({"model.attention.softmax.carry={kind: kv, length: 7}",
                   knn(memory + "{length: 9}, stride: 3, write: " + write)});
      some.read(text(10, 4), 2);
      some.read(x, piece);
      ASSERT_EQ(some.length("memory.0.keys"), 9);
      for (const std::string log : {"memory.0.keys", "memory.0.values"}) {
        const std::vector<double> every = all.entries(log);
        std::vector<double> expected;
        for (int64_t token = 0; token < entered; ++token) {
          if ((token + 1) % 3 != 0 || token < (entered / 3 - 9) * 3) continue;
          expected.insert(expected.end(), every.begin() + token * kWidth, every.begin() + (token + 1) * kWidth);
        }
        EXPECT_LT(largest_difference(some.entries(log), expected), 1e-14) << log;
      }
    }
  }
}

// The stride counts in a document that begins inside the row, and does not count padding.
TEST(KnnMemory, AStrideCountsFromTheBeginningOfTheDocument) {
  Reader all({knn("carry: {length: 9}, top_k: 3")});
  const auto of_token = [&](const Tensor& x, int64_t token) {
    all.read(x);
    const std::vector<double> keys = all.entries("memory.0.keys");
    return std::vector<double>(keys.begin() + token * kWidth, keys.begin() + (token + 1) * kWidth);
  };
  Reader some({knn("carry: {length: 9}, top_k: 3, stride: 2")});
  const Tensor x = text(kTokens);
  some.step_with(x, {0, 0, 0, -1, -1}, {4, 5, 6, 0, 0});
  EXPECT_EQ(some.entries("memory.0.keys"), of_token(x, 1));
  some.step_with(x, {0, 0, 1, 1, 1}, {7, 8, 0, 1, 2});
  EXPECT_EQ(some.entries("memory.0.keys"), of_token(x, 3));
  Reader few({knn("carry: {length: 9}, top_k: 3, stride: 12")});
  few.read(text(30));
  EXPECT_EQ(few.length("memory.0.keys"), 2);
}

TEST(KnnMemory, EntriesOfEarlierStepsAreNotRetrieved) {
  const Tensor x = text(40);
  Reader kept({knn("carry: {length: 40}, top_k: 40, combine: joint, stale: {keep: 2}")});
  Reader small({knn("carry: {length: 10}, top_k: 10, combine: joint")});
  EXPECT_LT(largest_difference(kept.read(x), small.read(x)), 1e-14);
  EXPECT_EQ(kept.length("memory.0.keys"), 40);
  EXPECT_NEAR(kept.told("memory.0.age"), 1.5, 1e-12);
}

TEST(KnnMemory, FewestEntriesAndReadingOnly) {
  const Tensor x = text(20);
  Reader closed({knn("carry: {length: 40}, top_k: 4, least: 40, closed_when_empty: true")});
  Reader none({});
  EXPECT_EQ(closed.read(x), none.read(x));
  Reader never({knn("carry: {length: 40}, top_k: 4, write: never")});
  never.read(x);
  EXPECT_EQ(never.length("memory.0.keys"), 0);
}

// A third of the entries a step: after three steps with other weights all of them are as these make them.
TEST(KnnMemory, RefreshedEntriesFollowTheWeights) {
  Reader reader({knn("carry: {length: 20}, top_k: 4, stale: {refresh: 0.34}")});
  const Tensor x = text(20);
  reader.read(x);
  EXPECT_NEAR(reader.told("memory.0.cosine"), 1, 1e-12);
  ops::scale(reader.parameter("key.weight"), RandomTensors(7).normal({kWidth, kWidth}), 0.5);
  ops::scale(reader.parameter("value.weight"), RandomTensors(8).normal({kWidth, kWidth}), 0.5);
  // The age at which an entry is refreshed stays bounded, whatever is appended meanwhile.
  for (int step = 0; step < 5; ++step) {
    reader.step(text(kTokens, 30 + static_cast<uint32_t>(step)));
    for (const LogRun& run : reader.state().ages(reader.log("memory.0.keys").group, 0)) EXPECT_LE(run.step, 4) << step;
  }
  EXPECT_NEAR(reader.told("memory.0.cosine"), 1, 1e-12);

  // The inputs are those of the tokens that entered.
  Reader some({knn("carry: {length: 20}, top_k: 4, stride: 2, stale: {refresh: 0.34}")});
  some.read(x);
  ops::scale(some.parameter("key.weight"), RandomTensors(7).normal({kWidth, kWidth}), 0.5);
  for (int step = 0; step < 5; ++step) some.step(text(kTokens, 30 + static_cast<uint32_t>(step)));
  EXPECT_NEAR(some.told("memory.0.cosine"), 1, 1e-12);

  Reader stale({knn("carry: {length: 20}, top_k: 4")});
  stale.read(x);
  EXPECT_NEAR(stale.told("memory.0.cosine"), 1, 1e-12);
  ops::scale(stale.parameter("key.weight"), RandomTensors(7).normal({kWidth, kWidth}), 0.5);
  stale.step(text(kTokens));
  EXPECT_LT(stale.told("memory.0.cosine"), 0.9);
}

// In a full memory each step drops the oldest entries: those behind them are refreshed, so that the next step reads
// them.
TEST(KnnMemory, RefreshesTheOldestEntriesThatStay) {
  Reader reader({knn("carry: {length: 20}, top_k: 4, stale: {refresh: 0.1}")});
  reader.read(text(20));
  const std::vector<double> before = reader.entries("memory.0.keys");
  ops::scale(reader.parameter("key.weight"), RandomTensors(7).normal({kWidth, kWidth}), 0.5);
  reader.step(text(kTokens, 30));
  const std::vector<double> after = reader.entries("memory.0.keys");
  std::vector<std::pair<int64_t, int64_t>> ages;
  for (const LogRun& run : reader.state().ages(reader.log("memory.0.keys").group, 0)) {
    ages.emplace_back(run.step, run.count);
  }
  // Two of the 20 entries are refreshed.
  EXPECT_EQ(ages, (std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {4, 3}, {3, 5}, {2, 5}, {1, 5}}));
  const auto keys = [](const std::vector<double>& all, int64_t first, int64_t count) {
    return std::vector<double>(all.begin() + first * kWidth, all.begin() + (first + count) * kWidth);
  };
  EXPECT_GT(largest_difference(keys(after, 0, 2), keys(before, 5, 2)), 0.01);
  EXPECT_EQ(keys(after, 2, 13), keys(before, 7, 13));
}

// With all groups looked at it is the exact search; a reader that goes on from saved state finds the same with few.
TEST(KnnMemory, AnInvertedFileFindsTheSameAfterAResume) {
  if (!load_faiss().found) GTEST_SKIP() << load_faiss().reason;
  const Tensor x = text(700);
  const auto memory = [](const std::string& search) {
    return std::vector{knn("carry: {length: 400}, top_k: 4, combine: joint, " + search)};
  };
  Reader exact(memory("search: exact"), DType::f32);
  Reader all(memory("search: inverted, inverted: {lists: 4, probes: 4, period: 200}"), DType::f32);
  EXPECT_EQ(all.read(x), exact.read(x));
  EXPECT_EQ(all.told("memory.0.recall"), 1);
  const std::vector<std::string> few = memory("search: inverted, inverted: {lists: 4, probes: 1, period: 200}");
  Reader straight(few, DType::f32);
  straight.read(x.slice(1, 0, 565).to(kCpu));
  EXPECT_GT(straight.told("memory.0.recall"), 0.2);
  EXPECT_LT(straight.told("memory.0.recall"), 1);
  Reader resumed(few, DType::f32);
  load_state(resumed.pool(), saved_state(straight.pool()));
  for (int64_t t = 565; t < 700; t += kTokens) {
    const Tensor piece = x.slice(1, t, t + kTokens).reshape({1, kTokens, kWidth});
    EXPECT_EQ(resumed.step(piece), straight.step(piece)) << t;
  }
  // Another document begins with nothing.
  EXPECT_EQ(straight.read(x), Reader(few, DType::f32).read(x));
}

TEST(KnnMemory, StateOfAnotherSizeIsRefused) {
  Reader reader({knn("carry: {length: 20}, top_k: 4")});
  reader.read(text(10));
  const SavedState saved = saved_state(reader.pool());
  Reader larger({knn("carry: {length: 21}, top_k: 4")});
  EXPECT_ERROR(load_state(larger.pool(), saved), ErrorKind::checkpoint, "--drop-state");
  Reader same({knn("carry: {length: 20}, top_k: 9")});
  load_state(same.pool(), saved);
  EXPECT_EQ(same.length("memory.0.keys"), 10);
  EXPECT_EQ(same.state().ages(same.log("memory.0.keys").group, 0)[0].step, 2);
}

TEST(KnnMemory, StateOfAnotherTypeIsRefused) {
  const auto in = [](const std::string& dtype) { return knn("top_k: 4, carry: {length: 20, dtype: " + dtype + "}"); };
  Reader reader({in("fp8")}, DType::f32);
  reader.read(text(10));
  const SavedState saved = saved_state(reader.pool());
  Reader other({in("int8")}, DType::f32);
  EXPECT_ERROR(load_state(other.pool(), saved), ErrorKind::checkpoint, "rows of f8 [20, 2, 6] are stored but");
  Reader same({in("fp8")}, DType::f32);
  load_state(same.pool(), saved);
  const Tensor next = text(kTokens, 2);
  EXPECT_EQ(same.step(next), reader.step(next));
}

TEST(KnnMemory, ContradictionsAreRefused) {
  const auto refused = [](const std::string& memory, const std::string& message,
                          const std::string& other = "model.width=12") {
    EXPECT_ERROR(Reader({knn(memory), other}), ErrorKind::config, message);
  };
  refused("carry: {length: 10}, top_k: 3, search: bucketed", "a length that is a multiple of top_k");
  refused("write: evict", "carries nothing that entries could leave");
  refused("stale: {keep: 2, refresh: 0.1}", "use keep or refresh");
  refused("carry: {length: 100}, search: inverted", "the groups would never be learned");
  refused("carry: {length: 100000}, search: inverted, stale: {keep: 3}", "entries that stay as they were written");
  refused("carry: {length: 100000, dtype: fp8}, search: inverted",
          "carry.dtype: search: inverted reads keys as f32 or bf16");
  refused("carry: {length: 100000, place: host}, search: inverted",
          "carry.place: search: inverted reads keys with carry.place: device");
  refused("combine: add, gate: 0.5", "only combine: gate and content_gate have one");
  refused("combine: stop_forward, closed_when_empty: true", "only combine: gate and content_gate can close");
  refused("write: never, stride: 2", "says which tokens enter memory");
  refused("carry: {length: 4}, least: 5", "memory would never be read");
  refused("write: evict, stale: {refresh: 0.1}", "use write: produce",
          "model.attention.softmax.carry={kind: kv, length: 4}");
  refused("top_k: 4", "beside which no memory goes", "model.attention.kind=vq");
  refused("top_k: 4}, {kind: knn, layers: [0], combine: joint", "list it before the other memories");
}

}  // namespace
}  // namespace quire::test
