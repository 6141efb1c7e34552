// Models of block-recurrent layers against a plain loop over windows in double precision, which shares no code with
// them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autograd/functions/basic.h"
#include "core/config/config.h"
#include "layers/config/model_config.h"
#include "layers/mechanism/mechanism_registry.h"
#include "layers/model/stack.h"
#include "layers/parameters/scope.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2, kTokens = 17, kWidth = 6, kLayers = 2, kHeads = 2, kSize = 4, kInner = kHeads * kSize;
constexpr double kNormEps = 1e-5, kKeyEps = 1e-6;

using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;
using Values = std::map<std::string, Vector>;  // of parameters, by name

struct Case {
  std::string options;  // of block_recurrent
  bool alibi = false;   // else: no positions
};
void PrintTo(const Case& value, std::ostream* out) {
  *out << value.options;
}

// Holds the options as the loop reads them, which shares nothing with their struct.
struct Options {
  int64_t window, states;
  std::string gate = "fixed", update = "skip";
  bool normed = true, self = false, previous = true, zero_keys = false, feedback = false;
  int64_t owner = 0;
};

Vector product(const Vector& matrix, const Vector& x) {
  Vector y(matrix.size() / x.size(), 0);
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += matrix[i * x.size() + j] * x[j];
  }
  return y;
}

Vector sum(Vector a, const Vector& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Vector relu(Vector x) {
  for (double& value : x) value = std::max(value, 0.0);
  return x;
}

Vector rms(const Vector& x, const Vector& gain) {
  double square = 0;
  for (const double value : x) square += value * value;
  Vector y = x;
  for (size_t i = 0; i < x.size(); ++i) y[i] *= gain[i] / std::sqrt(square / static_cast<double>(x.size()) + kNormEps);
  return y;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// One head of a vector of heads; divided by its length where queries and keys are normalised.
Vector head_of(const Vector& x, size_t head, bool unit) {
  Vector y(x.begin() + static_cast<int64_t>(head) * kSize, x.begin() + static_cast<int64_t>(head + 1) * kSize);
  if (!unit) return y;
  double square = kKeyEps;
  for (const double value : y) square += value * value;
  for (double& value : y) value /= std::sqrt(square);
  return y;
}

struct Seen {
  Vector key, value;  // of all heads, as they are projected
  int64_t distance = 0;
};

// Reads a model token by token and window by window (Hutchins et al. 2022; sections 1.2 and 1.3 of the published code's
// description): in a model with feedback the states are those of one layer, otherwise those of each.
class Loop {
 public:
  Loop(const Options& options, bool alibi, const Values& values) : o_(options), alibi_(alibi), values_(values) {}

  // x [T, E] of one document from its beginning. Returns the same shape.
  Vectors document(const Vectors& x) {
    states_.assign(kLayers, {});
    keys_.assign(kLayers, {});
    for (size_t layer = 0; layer < kLayers; ++layer) {
      if (!owns(layer)) continue;
      const Vector& initial = at(layer, "attention.states.initial");
      for (int64_t n = 0; n < o_.states; ++n) {
        states_[layer].emplace_back(initial.begin() + n * kWidth, initial.begin() + (n + 1) * kWidth);
      }
    }
    Vectors y;
    for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(o_.window)) {
      const size_t end = std::min(x.size(), begin + static_cast<size_t>(o_.window));
      Vectors window(x.begin() + static_cast<int64_t>(begin), x.begin() + static_cast<int64_t>(end));
      const std::vector<Vectors> before = states_;
      for (size_t layer = 0; layer < kLayers; ++layer) {
        window = tokens(layer, window, before[o_.feedback ? static_cast<size_t>(o_.owner) : layer]);
        if (owns(layer) && end == begin + static_cast<size_t>(o_.window)) update(layer);
      }
      y.insert(y.end(), window.begin(), window.end());
    }
    return y;
  }

 private:
  const Vector& at(size_t layer, const std::string& name) const {
    return values_.at("blocks." + std::to_string(layer) + "." + name);
  }
  bool owns(size_t layer) const { return !o_.feedback || layer == static_cast<size_t>(o_.owner); }
  size_t state_layer(size_t layer) const { return o_.feedback ? static_cast<size_t>(o_.owner) : layer; }

  // Softmax attention of a query over what it sees; nothing seen gives zeros. scale: a name, or that of no scale.
  Vector attend(const Vector& q, const std::vector<Seen>& seen, const Vector* scale, bool positions) const {
    Vector out(kInner, 0);
    for (size_t h = 0; h < kHeads; ++h) {
      const Vector query = head_of(q, h, o_.normed);
      double total = 0;
      for (const Seen& one : seen) {
        const Vector key = head_of(one.key, h, o_.normed);
        double logit = 0;
        for (size_t d = 0; d < kSize; ++d) logit += query[d] * key[d];
        // ALiBi with two heads: slopes 2^-4 and 2^-8.
        const double bias =
            positions && alibi_ ? -std::pow(2.0, h == 0 ? -4 : -8) * static_cast<double>(one.distance) : 0;
        logit =
            o_.normed ? (logit + bias) * std::abs((*scale)[h]) : logit / std::sqrt(static_cast<double>(kSize)) + bias;
        const double weight = std::exp(logit);
        total += weight;
        for (size_t d = 0; d < kSize; ++d) out[h * kSize + d] += weight * one.value[h * kSize + d];
      }
      for (size_t d = 0; d < kSize && total > 0; ++d) out[h * kSize + d] /= total;
    }
    return out;
  }
  const Vector* scale(size_t layer, const std::string& name) const {
    return o_.normed ? &at(layer, "attention." + name) : nullptr;
  }
  Vector joined(Vector a, const Vector& b) const {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  Vector normed_state(size_t layer, const Vectors& states, size_t n) const {
    const Vector& position = at(layer, "attention.states.position");
    Vector y = rms(states[n], at(layer, "attention.states.norm.weight"));
    for (size_t e = 0; e < kWidth; ++e) y[e] += position[n * kWidth + e];
    return y;
  }
  std::vector<Seen> state_keys(size_t layer, const Vectors& states) const {
    std::vector<Seen> seen;
    for (size_t n = 0; n < states.size(); ++n) {
      const Vector z = normed_state(layer, states, n);
      seen.push_back({product(at(layer, "attention.states.key.weight"), z),
                      product(at(layer, "attention.states.value.weight"), z)});
    }
    return seen;
  }

  // The tokens of a window in one layer. Their keys join those of the document.
  Vectors tokens(size_t layer, const Vectors& x, const Vectors& states) {
    std::vector<Seen>& keys = keys_[layer];
    const std::vector<Seen> of_states = state_keys(state_layer(layer), states);
    Vectors y;
    for (const Vector& in : x) {
      const Vector z = rms(in, at(layer, "attention_norm.weight"));
      keys.push_back({product(at(layer, "attention.key.weight"), z), product(at(layer, "attention.value.weight"), z)});
      const auto place = static_cast<int64_t>(keys.size()) - 1;
      std::vector<Seen> seen;
      for (int64_t distance = o_.self ? 0 : 1; distance <= o_.window; ++distance) {
        if (place - distance < 0) {
          if (o_.zero_keys) seen.push_back({Vector(kInner, 0), Vector(kInner, 0), distance});
          continue;
        }
        seen.push_back(keys[static_cast<size_t>(place - distance)]);
        seen.back().distance = distance;
      }
      const Vector own =
          attend(product(at(layer, "attention.query.weight"), z), seen, scale(layer, "self_scale"), true);
      const Vector read =
          attend(product(at(layer, "attention.state_query.weight"), z), of_states, scale(layer, "state_scale"), false);
      const Vector h = sum(in, product(at(layer, "attention.out.weight"), joined(own, read)));
      const Vector u = relu(product(at(layer, "mlp.up.weight"), rms(h, at(layer, "mlp_norm.weight"))));
      y.push_back(sum(h, product(at(layer, "mlp.down.weight"), u)));
    }
    return y;
  }

  // At the end of a window.
  void update(size_t layer) {
    Vectors& states = states_[layer];
    const std::vector<Seen> of_states = state_keys(layer, states);
    std::vector<Seen> of_tokens;
    const int64_t read = o_.previous ? 2 * o_.window : o_.window, all = static_cast<int64_t>(keys_[layer].size());
    for (int64_t n = all - read; n < all; ++n) {
      if (n >= 0) of_tokens.push_back(keys_[layer][static_cast<size_t>(n)]);
      if (n < 0 && o_.zero_keys) of_tokens.push_back({Vector(kInner, 0), Vector(kInner, 0)});
    }
    const auto weight = [&](const std::string& name) -> const Vector& { return at(layer, "attention.states." + name); };
    Vectors next;
    for (size_t n = 0; n < states.size(); ++n) {
      const Vector z = normed_state(layer, states, n);
      const Vector a = joined(
          attend(product(weight("query.weight"), z), of_states, scale(layer, "states.self_scale"), false),
          attend(product(weight("token_query.weight"), z), of_tokens, scale(layer, "states.token_scale"), false));
      Vector state = states[n];
      if (o_.update != "single") state = gate(layer, "attention_gate", state, product(weight("out.weight"), a), a);
      if (o_.update == "dual") {
        const Vector u = relu(product(weight("up.weight"), rms(state, weight("mlp_norm.weight"))));
        state = gate(layer, "mlp_gate", state, product(weight("down.weight"), u), u);
      }
      if (o_.update == "single") {
        const Vector u = relu(product(weight("up.weight"), a));
        Vector candidate = product(weight("down.weight"), u);
        for (double& value : candidate) value = std::tanh(value);
        state = gate(layer, "mlp_gate", state, candidate, u);
      }
      next.push_back(state);
    }
    states = next;
  }

  Vector gate(size_t layer, const std::string& name, const Vector& c, const Vector& z, const Vector& h) const {
    if (o_.gate == "residual") return sum(c, z);
    const Vector& bias = at(layer, "attention.states." + name + ".bias");
    const Vector asked =
        o_.gate == "fixed" ? Vector(kWidth, 0) : product(at(layer, "attention.states." + name + ".weight"), h);
    Vector next;
    for (size_t e = 0; e < kWidth; ++e) {
      if (o_.gate == "lstm") {
        const double forget = sigmoid(asked[e] + bias[e] + 1);
        const double input = sigmoid(asked[kWidth + e] + bias[kWidth + e] - 1);
        next.push_back(forget * c[e] + input * z[e]);
      } else {
        const double g = sigmoid(asked[e] + bias[e] + (o_.gate == "full" ? 1 : 0));
        next.push_back(g * c[e] + (1 - g) * z[e]);
      }
    }
    return next;
  }

  Options o_;
  bool alibi_;
  const Values& values_;
  std::vector<Vectors> states_;
  std::vector<std::vector<Seen>> keys_;  // by layer: of the document so far
};

// A stack of two layers, its parameters and its state.
class StackOfCase {
 public:
  explicit StackOfCase(const Case& given)
      : model_(parse_config<ModelConfig>(
            fmt::format("{{width: {}, layers: {}, heads: {}, head_size: {}, position: {{kind: {}}}, mlp: {{kind: relu, "
                        "hidden: 7}}, attention: {{kind: block_recurrent, block_recurrent: {{{}}}}}}}",
                        kWidth, kLayers, kHeads, kSize, given.alibi ? "alibi" : "none", given.options),
            "model.yaml")),
        layers_(model_.layer_configs()),
        scope_(store_, declared_, DType::f64) {
    const Mechanism& stack = mechanism(Role::stack, model_.stack.mechanism.kind);
    stack_ = stack.make_stack(scope_.child("stack"), {model_, layers_.front(), model_.stack.mechanism.options});
    store_.allocate(DType::f64, test_device(), 1);
    RandomTensors random(21);
    for (const ParameterStore::Entry& entry : store_.entries()) {
      const bool gain = entry.name.ends_with("norm.weight") || entry.name.ends_with("scale");
      // Negative scales, too: their absolute values count.
      const Tensor value = random.normal(entry.shape, gain ? 0.6 : 0.5, gain ? 1 : 0);
      entry.variable.value().copy_from(value.to(test_device()));
      values_[entry.name] = values_of(value);
    }
  }

  Variable read(Tape& tape, StatePool& pool, const Batch& batch, const Variable& x) {
    pool.begin_step(batch);
    const StateView view = pool.view(0, kRows);
    Forward f{.tape = tape, .batch = batch, .state = view};
    f.values = std::make_shared<std::vector<Variable>>(declared_.values.size());
    return (*stack_)(f, x);
  }
  StatePool state() const { return {declared_.state, kRows, kTokens, DType::f64, test_device()}; }
  const ParameterStore& store() const { return store_; }
  Values& values() { return values_; }

 private:
  ModelConfig model_;
  std::vector<LayerConfig> layers_;
  ParameterStore store_;
  Declarations declared_;
  Scope scope_;
  std::unique_ptr<Stack> stack_;
  Values values_;
};

// [R, T, E]: padding stays zero.
Vector read_by_loop(const Options& options, bool alibi, const Values& values, const Vector& x,
                    const Documents& documents) {
  Vector y(x.size(), 0);
  Loop loop(options, alibi, values);
  for (int64_t row = 0; row < kRows; ++row) {
    int64_t begin = row * kTokens;
    for (const int64_t length : documents[static_cast<size_t>(row)]) {
      Vectors document;
      for (int64_t t = begin; t < begin + length; ++t) {
        document.emplace_back(x.begin() + t * kWidth, x.begin() + (t + 1) * kWidth);
      }
      for (const Vector& token : loop.document(document)) {
        std::copy(token.begin(), token.end(), y.begin() + begin++ * kWidth);
      }
    }
  }
  return y;
}

std::string value_in(const std::string& options, const std::string& key, const std::string& otherwise) {
  const size_t found = options.find(key + ": ");
  if (found == std::string::npos) return otherwise;
  const size_t begin = found + key.size() + 2;
  return options.substr(begin, options.find(',', begin) - begin);
}

Options options_of(const Case& given) {
  const auto text = [&](const char* key, const char* otherwise) { return value_in(given.options, key, otherwise); };
  Options o{.window = std::stoll(text("window", "")), .states = std::stoll(text("states", ""))};
  o.gate = text("gate", "fixed"), o.update = text("update", "skip");
  o.normed = text("qk_norm", "true") == "true", o.self = text("attend_self", "false") == "true";
  o.previous = text("previous_window", "true") == "true", o.zero_keys = text("mask_empty", "true") == "false";
  o.feedback = text("feedback", "none") != "none";
  o.owner = o.feedback ? std::stoll(text("feedback", "")) : 0;
  return o;
}

const Documents kWholeRows{{kTokens}, {kTokens}};
const Documents kCutRows{{9, 1, 7}, {2, 12}};  // and padding

class BlockRecurrentLoop : public ::testing::TestWithParam<Case> {
 protected:
  // Zero keys before a document that begins inside a row exist only in the steps of feedback.
  std::vector<Documents> rows() const {
    return options_.zero_keys && !options_.feedback ? std::vector<Documents>{kWholeRows}
                                                    : std::vector<Documents>{kWholeRows, kCutRows};
  }
  const Options options_ = options_of(GetParam());
};

TEST_P(BlockRecurrentLoop, ReadsTheSameInAnyCut) {
  StackOfCase stack(GetParam());
  const Tensor x = RandomTensors(22).normal({kRows, kTokens, kWidth});
  for (const Documents& documents : rows()) {
    const Vector expected = read_by_loop(options_, GetParam().alibi, stack.values(), values_of(x), documents);
    for (const int64_t length : {kTokens, int64_t{10}, int64_t{4}, int64_t{1}}) {
      StatePool pool = stack.state();
      for (int64_t begin = 0; begin < kTokens; begin += length) {
        const int64_t count = std::min(length, kTokens - begin);
        const Batch batch = part_of_rows(documents, begin, count);
        Tape tape(false);
        const Variable in = slice(tape, Variable::constant(x.to(test_device())), 1, begin, begin + count);
        const Vector out = values_of(stack.read(tape, pool, batch, in).value());
        pool.commit();
        for (int64_t cell = 0; cell < kRows * count; ++cell) {
          if (!batch.has_token(cell)) continue;
          const int64_t token = cell / count * kTokens + begin + cell % count;
          for (int64_t e = 0; e < kWidth; ++e) {
            ASSERT_NEAR(out[static_cast<size_t>(cell * kWidth + e)], expected[static_cast<size_t>(token * kWidth + e)],
                        1e-11)
                << "steps of " << length << ", token " << token;
          }
        }
      }
    }
  }
}

// Central differences of the loop: 1e-16 / 1e-6 of rounding, and 1e-12 times a third derivative.
TEST_P(BlockRecurrentLoop, GradientsAreThoseOfTheLoop) {
  constexpr double kStep = 1e-6;
  StackOfCase stack(GetParam());
  RandomTensors random(23);
  const Tensor x = random.normal({kRows, kTokens, kWidth}), weights = random.normal({kRows, kTokens, kWidth});
  const Documents documents = rows().back();
  const Batch batch = part_of_rows(documents, 0, kTokens);
  Vector inputs = values_of(x), counted = values_of(weights);
  for (int64_t cell = 0; cell < kRows * kTokens; ++cell) {
    if (batch.has_token(cell)) continue;
    std::fill_n(counted.begin() + cell * kWidth, kWidth, 0.0);
  }
  StatePool pool = stack.state();
  Tape tape;
  const Variable leaf = Variable::leaf(x.to(test_device()));
  const Tensor seeds = Tensor::from(counted, x.shape(), test_device());
  tape.backward({{weighted_sum(tape, stack.read(tape, pool, batch, leaf), seeds), 1.0}});
  const auto expect = [&](const std::string& name, Vector& values, const Vector& got, int64_t tries) {
    for (int64_t n = 0; n < tries; ++n) {
      const auto i = static_cast<size_t>(random.below(static_cast<int64_t>(got.size())));
      const double before = values[i];
      const auto loss_at = [&](double value) {
        values[i] = value;
        const Vector out = read_by_loop(options_, GetParam().alibi, stack.values(), inputs, documents);
        double loss = 0;
        for (size_t o = 0; o < out.size(); ++o) loss += out[o] * counted[o];
        return loss;
      };
      const double numeric = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
      values[i] = before;
      EXPECT_NEAR(got[i], numeric, 1e-6 * std::max(1.0, std::abs(numeric))) << name << " " << i;
    }
  };
  expect("x", inputs, values_of(leaf.gradient()->value()), 10);
  for (const ParameterStore::Entry& entry : stack.store().entries()) {
    const Vector got = values_of(ParameterStore::slice(stack.store().gradients(), entry));
    expect(entry.name, stack.values().at(entry.name), got, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BlockRecurrentLoop,
    ::testing::Values(Case{"window: 3, states: 2"}, Case{"window: 3, states: 3, gate: residual, update: dual", true},
                      Case{"window: 4, states: 2, gate: full, update: dual, previous_window: false"},
                      Case{"window: 2, states: 3, gate: lstm, update: dual, attend_self: true", true},
                      Case{"window: 3, states: 2, gate: residual, update: single"},
                      Case{"window: 3, states: 2, gate: fixed, update: single, qk_norm: false"},
                      Case{"window: 5, states: 1, gate: full, update: single", true},
                      Case{"window: 1, states: 2, gate: lstm, update: single"},
                      Case{"window: 3, states: 2, gate: full"}, Case{"window: 4, states: 2, gate: lstm", true},
                      Case{"window: 20, states: 2"}, Case{"window: 3, states: 2, mask_empty: false", true},
                      Case{"window: 4, states: 2, mask_empty: false, qk_norm: false, update: dual"},
                      Case{"window: 3, states: 2, feedback: 1", true},
                      Case{"window: 3, states: 2, feedback: 0, gate: lstm, update: dual"},
                      Case{"window: 4, states: 3, feedback: 1, gate: full, update: single, previous_window: false",
                           true},
                      Case{"window: 1, states: 2, feedback: 1, qk_norm: false, gate: residual"},
                      Case{"window: 5, states: 2, feedback: 1, attend_self: true, gate: full"},
                      Case{"window: 3, states: 2, feedback: 1, mask_empty: false", true}));

}  // namespace
}  // namespace quire::test
