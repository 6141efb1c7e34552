#include "layers/mixers/infini_heads.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "core/config/config.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/head_reader.h"
#include "tests/support/random_tensor.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2, kHeads = 4, kKeyHeads = 2, kSize = 6, kTokens = 31;

struct Inputs {
  std::vector<double> q, k, v;  // [R, T, H or Hk, D]
};

Inputs random_inputs(uint32_t seed, double mean = 0) {
  RandomTensors random(seed);
  return {values_of(random.normal({kRows, kTokens, kHeads, kSize}, 2, mean)),
          values_of(random.normal({kRows, kTokens, kKeyHeads, kSize}, 1, mean)),
          values_of(random.normal({kRows, kTokens, kKeyHeads, kSize}))};
}

double phi(double x) {
  return x > 0 ? x + 1 : std::exp(x);
}

// Computes the definition (Munkhdalai et al. 2024, section 3.1), token by token.
class Reference {
 public:
  Reference(const Inputs& in, const InfiniConfig& config, bool rope) : in_(in), config_(config), rope_(rope) {}

  std::vector<double> read(const Documents& documents) {
    out_.assign(in_.q.size(), 0);
    for (int64_t row = 0; row < kRows; ++row) {
      int64_t begin = 0;
      for (const int64_t length : documents[static_cast<size_t>(row)]) {
        for (int64_t head = 0; head < kHeads; ++head) read_document(row, begin, length, head);
        begin += length;
      }
    }
    return out_;
  }

 private:
  static const double* at(const std::vector<double>& x, int64_t heads, int64_t row, int64_t t, int64_t head) {
    return x.data() + ((row * kTokens + t) * heads + head) * kSize;
  }

  void read_document(int64_t row, int64_t begin, int64_t length, int64_t head) {
    const int64_t kv = head / (kHeads / kKeyHeads);
    double memory[kSize][kSize] = {}, normaliser[kSize] = {};
    for (int64_t first = 0; first < length; first += config_.block) {
      const int64_t end = std::min(length, first + config_.block);
      const auto recall = [&](const double* x, int64_t e) {
        double above = 0, below = 0;
        for (int64_t d = 0; d < kSize; ++d) {
          above += phi(x[d]) * memory[d][e];
          below += phi(x[d]) * normaliser[d];
        }
        return first == 0 ? 0 : above / below;
      };
      for (int64_t p = first; p < end; ++p) {
        const double* const q = at(in_.q, kHeads, row, begin + p, head);
        double* const out = out_.data() + ((row * kTokens + begin + p) * kHeads + head) * kSize;
        const double share = 1 / (1 + std::exp(-config_.gate.init));
        const bool local_alone = !config_.remembers() || (first == 0 && config_.empty_gate == InfiniEmptyGate::local);
        const int64_t from = config_.window ? std::max<int64_t>(0, p - *config_.window) : first;
        double sum = 0, largest = -INFINITY;
        for (int64_t j = from; j <= p; ++j) {
          largest = std::max(largest, logit(q, at(in_.k, kKeyHeads, row, begin + j, kv), p - j));
        }
        std::vector<double> local(static_cast<size_t>(kSize), 0);
        for (int64_t j = from; j <= p; ++j) {
          const double* const k = at(in_.k, kKeyHeads, row, begin + j, kv);
          const double weight = std::exp(logit(q, k, p - j) - largest);
          sum += weight;
          for (size_t d = 0; d < local.size(); ++d) local[d] += weight * at(in_.v, kKeyHeads, row, begin + j, kv)[d];
        }
        for (int64_t d = 0; d < kSize; ++d) {
          const double a = local[static_cast<size_t>(d)] / sum;
          out[d] = local_alone ? a : share * recall(q, d) + (1 - share) * a;
        }
      }
      if (end - first < config_.block) continue;
      std::vector<double> values;
      for (int64_t p = first; p < end; ++p) {
        for (int64_t d = 0; d < kSize; ++d) {
          const double known =
              config_.update == InfiniUpdate::delta ? recall(at(in_.k, kKeyHeads, row, begin + p, kv), d) : 0;
          values.push_back(at(in_.v, kKeyHeads, row, begin + p, kv)[d] - known);
        }
      }
      for (int64_t d = 0; d < kSize; ++d) {
        normaliser[d] *= config_.keep;
        for (int64_t e = 0; e < kSize; ++e) memory[d][e] *= config_.keep;
      }
      for (int64_t p = first; p < end; ++p) {
        for (int64_t d = 0; d < kSize; ++d) {
          const double key = phi(at(in_.k, kKeyHeads, row, begin + p, kv)[d]);
          normaliser[d] += key;
          for (int64_t e = 0; e < kSize; ++e) {
            memory[d][e] += key * values[static_cast<size_t>((p - first) * kSize + e)];
          }
        }
      }
    }
  }

  // Rotation by a distance: of pairs d and d + D / 2.
  double logit(const double* q, const double* k, int64_t distance) const {
    double sum = 0;
    for (int64_t d = 0; d < kSize / 2; ++d) {
      const double angle = rope_ ? static_cast<double>(distance) *
                                       std::pow(10000.0, -2.0 * static_cast<double>(d) / static_cast<double>(kSize))
                                 : 0;
      const int64_t e = d + kSize / 2;
      sum += (q[d] * k[d] + q[e] * k[e]) * std::cos(angle) + (q[d] * k[e] - q[e] * k[d]) * std::sin(angle);
    }
    return sum / std::sqrt(static_cast<double>(kSize));
  }

  const Inputs& in_;
  const InfiniConfig& config_;
  bool rope_;
  std::vector<double> out_;
};

Tensor tensor_at(const std::vector<double>& x, int64_t heads, int64_t begin, int64_t count) {
  return packed(Tensor::from(x, {kRows, kTokens, heads, kSize}, test_device()).slice(1, begin, begin + count));
}

// Holds what InfiniHeads needs to know of a model.
struct Model {
  ModelConfig config;
  InfiniConfig options;

  Model(const std::string& text, bool rope)
      : config(parse_config<ModelConfig>(
            fmt::format("{{width: 24, layers: 1, heads: {}, key_heads: {}, head_size: {}, position: {{kind: {}}}, "
                        "attention: {{kind: infini, infini: {{{}}}}}}}",
                        kHeads, kKeyHeads, kSize, rope ? "rope" : "none", text),
            "model.yaml")),
        options(config.attention.mechanism.options.get<InfiniConfig>()) {}

  InfiniHeads heads(const Scope& scope) const {
    const LayerConfig layer = config.common_layer();
    return {scope, Place{config, layer, config.attention.mechanism.options}, std::make_shared<PositionTables>()};
  }
};

const Documents kOneEach{{kTokens}, {kTokens}};
const Documents kSeveral{{9, 1, 21}, {2, 14, 12}};  // and padding

const std::vector<std::string> kOptions{
    "block: 4",
    "block: 3, update: delta, gate: {init: 0.7}",
    "block: 1, update: delta, empty_gate: local, gate: {kind: query, init: -1}",
    "block: 5, keep: 0.8",
    "block: 4, window: 6, empty_gate: local, update: delta",
    "block: 6, window: 2",
    "block: 40",
    "block: 4, update: none",
};

TEST(InfiniHeads, AgreesWithTheDefinition) {
  for (const std::string& text : kOptions) {
    for (const bool rope : {true, false}) {
      const Model model(text, rope);
      const Inputs in = random_inputs(11);
      for (const Documents& documents : {kOneEach, kSeveral}) {
        const std::vector<double> expected = Reference(in, model.options, rope).read(documents);
        for (const int64_t length : {kTokens, int64_t{10}, int64_t{4}, int64_t{1}}) {
          SCOPED_TRACE(fmt::format("{}, {} documents, steps of {}", text, documents[0].size(), length));
          HeadReader<InfiniHeads> reader(DType::f64, kRows, kTokens,
                                         [&](const Scope& scope) { return model.heads(scope); });
          for (int64_t begin = 0; begin < kTokens; begin += length) {
            const int64_t count = std::min(length, kTokens - begin);
            const std::vector<double> out = values_of(
                reader.read(part_of_rows(documents, begin, count), tensor_at(in.q, kHeads, begin, count),
                            tensor_at(in.k, kKeyHeads, begin, count), tensor_at(in.v, kKeyHeads, begin, count)));
            const std::vector<double> part = values_of(tensor_at(expected, kHeads, begin, count));
            for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], part[i], 1e-11) << "from " << begin;
          }
        }
      }
    }
  }
}

// Central differences of the definition: 1e-16 / 1e-6 of rounding, and 1e-12 times a third derivative.
TEST(InfiniHeads, GradientsAreThoseOfTheDefinition) {
  constexpr double kStep = 1e-6;
  for (const std::string& text : kOptions) {
    SCOPED_TRACE(text);
    const Model model(text, true);
    Inputs in = random_inputs(12);
    RandomTensors random(13);
    const std::vector<double> weights = values_of(random.normal({kRows, kTokens, kHeads, kSize}));
    ParameterStore store;
    Declarations declared;
    const InfiniHeads heads = model.heads(Scope(store, declared, DType::f64));
    store.allocate(DType::f64, test_device(), 1);
    StatePool pool(declared.state, kRows, kTokens, DType::f64, test_device());
    const Batch batch = part_of_rows(kSeveral, 0, kTokens);
    pool.begin_step(batch);
    Tape tape;
    const StateView view = pool.view(0, kRows);
    const Forward f{.tape = tape, .batch = batch, .state = view};
    const Variable q = Variable::leaf(tensor_at(in.q, kHeads, 0, kTokens));
    const Variable k = Variable::leaf(tensor_at(in.k, kKeyHeads, 0, kTokens));
    const Variable v = Variable::leaf(tensor_at(in.v, kKeyHeads, 0, kTokens));
    tape.backward({{weighted_sum(tape, heads(f, q, k, v), tensor_at(weights, kHeads, 0, kTokens)), 1.0}});
    for (const auto& [variable, values] : {std::pair{&q, &in.q}, std::pair{&k, &in.k}, std::pair{&v, &in.v}}) {
      const std::vector<double> got = values_of(variable->gradient()->value());
      for (int n = 0; n < 40; ++n) {
        const auto i = static_cast<size_t>(random.below(static_cast<int64_t>(got.size())));
        const double before = (*values)[i];
        const auto loss_at = [&](double x) {
          (*values)[i] = x;
          const std::vector<double> out = Reference(in, model.options, true).read(kSeveral);
          double sum = 0;
          for (size_t o = 0; o < out.size(); ++o) sum += out[o] * weights[o];
          return sum;
        };
        const double numeric = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
        (*values)[i] = before;
        EXPECT_NEAR(got[i], numeric, 1e-7 * std::max(1.0, std::abs(numeric))) << "element " << i;
      }
    }
  }
}

// phi(q) and phi(k) near 1e-16: what is read is a ratio and stays exact. The gate leaves the memory alone, since logits
// of local attention are in the thousands here.
TEST(InfiniHeads, VeryNegativeQueriesAndKeysReadTheSame) {
  const Model model("block: 4, update: delta, gate: {init: 100}", false);
  const Inputs in = random_inputs(14, -36);
  const std::vector<double> expected = Reference(in, model.options, false).read(kOneEach);
  for (const DType dtype : {DType::f64, DType::f32}) {
    HeadReader<InfiniHeads> reader(dtype, kRows, kTokens, [&](const Scope& scope) { return model.heads(scope); });
    const auto all = [&](const std::vector<double>& x, int64_t heads) {
      return converted(tensor_at(x, heads, 0, kTokens), dtype);
    };
    const std::vector<double> out =
        values_of(reader.read(all(in.q, kHeads), all(in.k, kKeyHeads), all(in.v, kKeyHeads)));
    for (size_t i = 0; i < out.size(); ++i) {
      // f32: 24 bits over sums of at most 28 keys, and exponents of up to 40 that are exact to 40 * 2^-24.
      ASSERT_NEAR(out[i], expected[i], dtype == DType::f64 ? 1e-11 : 2e-5) << name_of(dtype);
    }
  }
}

// The state of a bf16 model is f32, and its size does not depend on how much was read.
TEST(InfiniHeads, MemoryIsWide) {
  const Model model("block: 4", true);
  ParameterStore store;
  Declarations declared;
  const InfiniHeads heads = model.heads(Scope(store, declared, DType::bf16));
  StatePool pool(declared.state, kRows, kTokens, DType::bf16, kCpu);
  int64_t registers = 0;
  for (const NamedTensor& named : pool.tensors()) {
    if (named.name != "memory.value" && named.name != "normaliser.value") continue;
    ++registers;
    EXPECT_EQ(named.tensor.dtype(), DType::f32) << named.name;
    EXPECT_EQ(named.tensor.dim(0), kRows);
  }
  EXPECT_EQ(registers, 2);
}

}  // namespace
}  // namespace quire::test
