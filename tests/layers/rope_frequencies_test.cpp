// Scaled rotary positions: published settings, and that every mixer reads the scaled angles and logits.
#include "layers/position/rope_frequencies.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/model/model_mechanisms.h"
#include "tests/support/document_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/model_reader.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

// Frequencies that transformers 4.57 and 5.24 compute for settings of published models.
struct Published {
  std::string name;
  int64_t dims;
  double base;
  std::string scaling;
  std::vector<std::pair<size_t, double>> frequencies;
  double attention_factor;
};

class PublishedSettings : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedSettings, HaveTheirFrequencies) {
  const Published& tested = GetParam();
  const auto rope =
      parse_config<RopeConfig>(fmt::format("base: {}\nscaling: {}\n", tested.base, tested.scaling), "rope.yaml");
  const std::vector<double> frequencies = rope_frequencies(rope, tested.dims);
  EXPECT_EQ(static_cast<int64_t>(frequencies.size()), tested.dims / 2);
  EXPECT_EQ(frequencies[0], tested.scaling.find("linear") == std::string::npos ? 1 : 0.25);
  for (const auto& [pair, expected] : tested.frequencies) {
    EXPECT_NEAR(frequencies[pair], expected, 1e-13 * expected) << pair;
  }
  EXPECT_NEAR(rope_logit_factor(rope), std::pow(tested.attention_factor, 2), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(
    , PublishedSettings,
    ::testing::Values(
        Published{"llama3_2_1b",
                  64,
                  5e5,
                  "{kind: llama3, factor: 32, original_length: 8192}",
                  {{1, 0.663601237696088}, {16, 0.000429556796559368}, {31, 9.41830672543491e-08}},
                  1},
        Published{"llama3_1_8b",
                  128,
                  5e5,
                  "{kind: llama3, factor: 8, original_length: 8192, low_frequency_factor: 1, high_frequency_factor: 4}",
                  {{21, 0.0134904198902267}, {32, 0.000524846160992955}, {63, 3.06892598891451e-07}},
                  1},
        Published{"yarn_qwen2_5",
                  64,
                  1e6,
                  "{kind: yarn, factor: 4, original_length: 32768}",
                  {{10, 0.0133352143216332}, {16, 0.000583333333333333}, {31, 3.84981631514873e-07}},
                  1.138629436111989},
        Published{"yarn_untruncated",
                  64,
                  150000,
                  "{kind: yarn, factor: 32, original_length: 4096, truncate: false}",
                  {{1, 0.689044305888163}, {10, 0.0193350011265404}, {16, 0.000456483919223241}},
                  1.3465735902799727},
        Published{
            "linear", 64, 10000, "{kind: linear, factor: 4}", {{1, 0.187473552333114}, {31, 3.33380358040831e-05}}, 1},
        Published{"dynamic_at_4096",
                  64,
                  10000,
                  "{kind: dynamic, factor: 2, original_length: 2048, length: 4096}",
                  {{1, 0.723784022394256}, {31, 4.44507144054441e-05}},
                  1},
        Published{"dynamic_at_2048",
                  64,
                  10000,
                  "{kind: dynamic, factor: 2, original_length: 2048, length: 2048}",
                  {{1, 0.749894209332456}, {31, 0.000133352143216332}},
                  1}),
    [](const auto& tested) { return tested.param.name; });

TEST(RopeScaling, LongropeTakesTheFactorsOfTheStatedLength) {
  const auto rope = [](int64_t length, const std::string& more) {
    return parse_config<RopeConfig>(
        fmt::format("scaling: {{kind: longrope, original_length: 48, length: {}, short_factors: [1, 2], "
                    "long_factors: [4, 8]{}}}\n",
                    length, more),
        "rope.yaml");
  };
  EXPECT_EQ(rope_frequencies(rope(48, ""), 4), (std::vector<double>{1, 0.005}));
  EXPECT_EQ(rope_frequencies(rope(49, ""), 4), (std::vector<double>{0.25, 0.00125}));
  EXPECT_EQ(rope_logit_factor(rope(48, "")), 1);
  EXPECT_NEAR(rope_logit_factor(rope(96, "")), 1 + std::log(2) / std::log(48), 1e-14);
  EXPECT_NEAR(rope_logit_factor(rope(96, ", factor: 4")), 1 + std::log(4) / std::log(48), 1e-14);
  EXPECT_NEAR(rope_logit_factor(rope(96, ", attention_factor: 3")), 9, 1e-14);
}

TEST(RopeScaling, YarnTakesTheRatioOfBothFactorsOfMscale) {
  const auto rope = parse_config<RopeConfig>(
      "scaling: {kind: yarn, factor: 4, original_length: 32, mscale: 1, mscale_all_dim: 0.7}\n", "rope.yaml");
  EXPECT_NEAR(std::sqrt(rope_logit_factor(rope)), (0.1 * std::log(4) + 1) / (0.07 * std::log(4) + 1), 1e-14);
}

TEST(RopeScaling, ContradictionsAreRefused) {
  const auto refused = [](const std::string& scaling, const char* message) {
    EXPECT_ERROR(parse_config<RopeConfig>("scaling: " + scaling + "\n", "rope.yaml"), ErrorKind::config, message);
  };
  refused("{kind: linear}", "factor");
  refused("{kind: linear, factor: 2, original_length: 8}", "original_length");
  refused("{kind: llama3, factor: 8, original_length: 64, low_frequency_factor: 4}", "above low_frequency_factor");
  refused("{kind: yarn, factor: 8, original_length: 64, beta_fast: 1}", "above beta_slow");
  refused("{kind: yarn, factor: 8, original_length: 64, mscale: 1}", "only together");
  refused("{kind: yarn, factor: 8, original_length: 64, mscale: 1, mscale_all_dim: 1, attention_factor: 1}",
          "give it already");
}

// Three subsequences of a document, so that what is carried and stored is read too.
constexpr int64_t kLength = 12;
constexpr int64_t kVocabulary = 9;

std::vector<double> nats(const std::vector<std::string>& settings, double query_factor) {
  std::vector<std::string> all{"model.position.kind=rope"};
  all.insert(all.end(), settings.begin(), settings.end());
  const RunConfig config = parse_config<RunConfig>(
      "data: {subsequence: 12}\nmodel: {width: 12, heads: 2, layers: 2, mlp: {hidden: 8}, initialization: {std: 0.4}}",
      "model.yaml", all);
  ModelReader reader(config.model, kVocabulary, 1, kLength);
  for (const ParameterStore::Entry& entry : reader.store().entries()) {
    if (!entry.name.ends_with("attention.query.weight")) continue;
    double* const values = reader.store().value(entry).data<double>();
    for (int64_t i = 0; i < entry.shape.numel(); ++i) values[i] *= query_factor;
  }
  const auto batches = with_inserted(cut(random_documents({{3 * kLength}}, kVocabulary, 1), kLength, Pack::pad),
                                     insertion_of(config.model), kVocabulary);
  std::vector<double> all_nats;
  for (const auto& [place, value] : reader.read(batches)) all_nats.push_back(value);
  return all_nats;
}

std::vector<double> nats(std::vector<std::string> settings, const std::string& rope, double query_factor = 1) {
  settings.push_back("model.position.rope=" + rope);
  return nats(settings, query_factor);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Without terms of queries and keys that are not rotated.
const std::vector<std::vector<std::string>>& mixers() {
  static const std::vector<std::vector<std::string>> all{
      {"model.attention={softmax: {carry: {kind: kv, length: 20}}}", "model.key_heads=1"},
      {"model.attention={softmax: {carry: {kind: hidden, length: 20}}}"},
      {"model.attention={softmax: {window: 5, carry: {kind: kv}}}",
       "model.memory=[{kind: knn, layers: [0, 1], carry: {length: 30}, top_k: 3, combine: joint}]"},
      {"model.attention={kind: landmark, landmark: {block: 2, top_k: 2, carry: {length: 8, in_training: true}, "
       "context_miss: {enabled: true, cutoff: 0.2}}}"},
      {"model.attention={kind: moba, moba: {block: 3, top_k: 3, carry: {length: 10}}}"},
      {"model.attention={kind: infini, infini: {block: 5, update: none}}"},
      {"model.attention={kind: block_recurrent, block_recurrent: {window: 5, states: 2, qk_norm: false}}"}};
  return all;
}

// Scaling by another base is the other base, whichever tables a mixer rotates by.
TEST(RopeScaling, EveryMixerReadsTheAngles) {
  const double base = 10000 * std::pow(2.0 * 64 / 16 - 1, 6.0 / 4);
  const std::string scaled = "{scaling: {kind: dynamic, factor: 2, original_length: 16, length: 64}}";
  for (const std::vector<std::string>& mixer : mixers()) {
    const std::vector<double> other_base = nats(mixer, fmt::format("{{base: {:.17g}}}", base));
    EXPECT_LT(largest_difference(nats(mixer, scaled), other_base), 1e-11) << mixer[0];
    EXPECT_GT(largest_difference(nats(mixer, "{}"), other_base), 1e-6) << mixer[0];
  }
}

// A factor of cosines and sines is one of queries, also for blocks that are rotated twice.
TEST(RopeScaling, EveryMixerScalesItsLogits) {
  const std::string scaled = "{scaling: {kind: yarn, factor: 1, original_length: 16, attention_factor: 1.3}}";
  for (const std::vector<std::string>& mixer : mixers()) {
    EXPECT_LT(largest_difference(nats(mixer, scaled), nats(mixer, "{}", 1.3 * 1.3)), 1e-11) << mixer[0];
    EXPECT_GT(largest_difference(nats(mixer, scaled), nats(mixer, "{}")), 1e-4) << mixer[0];
  }
}

// Layers share their tables.
TEST(RopeScaling, LayersWithOtherAnglesKeepTheirs) {
  const auto second = [](const std::string& rope) {
    return nats({"model.attention={softmax: {carry: {kind: kv, length: 20}}}",
                 "model.layer_overrides=[{layers: [1], position: {rope: " + rope + "}}]"},
                1);
  };
  const double base = 10000 * std::pow(2.0 * 64 / 16 - 1, 6.0 / 4);
  const std::vector<double> other_base = second(fmt::format("{{base: {:.17g}}}", base));
  const std::vector<double> scaled = second("{scaling: {kind: dynamic, factor: 2, original_length: 16, length: 64}}");
  EXPECT_LT(largest_difference(scaled, other_base), 1e-11);
  EXPECT_GT(largest_difference(second("{}"), other_base), 1e-6);
}

}  // namespace
}  // namespace quire::test
