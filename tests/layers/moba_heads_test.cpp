#include "layers/mixers/moba_heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/config/config.h"
#include "layers/config/model_config.h"
#include "tests/support/compare.h"
#include "tests/support/head_reader.h"
#include "tests/support/model_reader.h"
#include "tests/support/random_tensor.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2, kHeads = 4, kKeyHeads = 2, kSize = 6, kTokens = 29;

struct Inputs {
  std::vector<double> q, k, v;  // [R, T, H or Hk, D]
};

Inputs random_inputs(uint32_t seed) {
  RandomTensors random(seed);
  return {values_of(random.normal({kRows, kTokens, kHeads, kSize}, 2)),
          values_of(random.normal({kRows, kTokens, kKeyHeads, kSize})),
          values_of(random.normal({kRows, kTokens, kKeyHeads, kSize}))};
}

const double* line(const std::vector<double>& x, int64_t heads, int64_t row, int64_t token, int64_t head) {
  return x.data() + ((row * kTokens + token) * heads + head) * kSize;
}

// x at an absolute position.
std::vector<double> rotated(const double* x, int64_t position, bool rope) {
  std::vector<double> y(x, x + kSize);
  for (int64_t i = 0; rope && i < kSize / 2; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(kSize));
    const auto a = static_cast<size_t>(i), b = static_cast<size_t>(i + kSize / 2);
    y[a] = x[i] * std::cos(angle) - x[i + kSize / 2] * std::sin(angle);
    y[b] = x[i] * std::sin(angle) + x[i + kSize / 2] * std::cos(angle);
  }
  return y;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Computes what one query reads, by the definition: Lu et al. 2025, section 2.2.
std::vector<double> reference(const Inputs& in, const MobaConfig& config, bool rope, int64_t row, int64_t token,
                              int64_t head) {
  const int64_t kv = head / (kHeads / kKeyHeads);
  const double scale = 1 / std::sqrt(static_cast<double>(kSize));
  const std::vector<double> q = rotated(line(in.q, kHeads, row, token, head), token, rope);
  const auto key = [&](int64_t j) { return rotated(line(in.k, kKeyHeads, row, j, kv), j, rope); };
  const int64_t own = token / config.block;
  std::vector<std::pair<double, int64_t>> scores;
  for (int64_t block = std::max<int64_t>(0, own - config.carry.length); block < own; ++block) {
    std::vector<double> mean(static_cast<size_t>(kSize), 0);
    for (int64_t j = block * config.block; j < (block + 1) * config.block; ++j) {
      const std::vector<double> k = key(j);
      for (size_t d = 0; d < mean.size(); ++d) mean[d] += k[d] / static_cast<double>(config.block);
    }
    scores.emplace_back(-product(q, mean), block);
  }
  std::stable_sort(scores.begin(), scores.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int64_t> keys;
  for (int64_t n = 0; n < std::min<int64_t>(config.top_k - 1, static_cast<int64_t>(scores.size())); ++n) {
    for (int64_t j = 0; j < config.block; ++j) keys.push_back(scores[static_cast<size_t>(n)].second * config.block + j);
  }
  for (int64_t j = own * config.block; j <= token; ++j) keys.push_back(j);
  double sum = 0;
  std::vector<double> out(static_cast<size_t>(kSize), 0);
  for (const int64_t j : keys) {
    const double weight = std::exp(scale * product(q, key(j)));
    sum += weight;
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight * line(in.v, kKeyHeads, row, j, kv)[d];
  }
  for (double& x : out) x /= sum;
  return out;
}

void expect_reference(const Inputs& in, const MobaConfig& config, Position position, int64_t length) {
  SCOPED_TRACE(fmt::format("block {}, top_k {}, capacity {}, chunks of {}", config.block, config.top_k,
                           config.carry.length, length));
  HeadReader<MobaHeads> reader(DType::f64, kRows, kTokens, [&](const Scope& scope) {
    return MobaHeads(scope, config, {kHeads, kKeyHeads, kSize, kSize}, position, {},
                     std::make_shared<PositionTables>());
  });
  for (int64_t begin = 0; begin < kTokens; begin += length) {
    const int64_t count = std::min(length, kTokens - begin);
    const auto chunk = [&](const std::vector<double>& x, int64_t heads) {
      return packed(Tensor::from(x, {kRows, kTokens, heads, kSize}, test_device()).slice(1, begin, begin + count));
    };
    const std::vector<double> out =
        values_of(reader.read(chunk(in.q, kHeads), chunk(in.k, kKeyHeads), chunk(in.v, kKeyHeads)));
    for (int64_t i = 0; i < kRows * count * kHeads; ++i) {
      const int64_t row = i / kHeads / count, token = begin + i / kHeads % count, head = i % kHeads;
      const std::vector<double> expected = reference(in, config, position == Position::rope, row, token, head);
      for (int64_t d = 0; d < kSize; ++d) {
        ASSERT_NEAR(out[static_cast<size_t>(i * kSize + d)], expected[static_cast<size_t>(d)], 1e-10)
            << "row " << row << ", token " << token << ", head " << head;
      }
    }
  }
}

MobaConfig moba(int64_t block, int64_t top_k, int64_t capacity) {
  MobaConfig config;
  config.block = block;
  config.top_k = top_k;
  config.carry.length = capacity;
  return config;
}

TEST(MobaHeads, ReadsTheBestBlocks) {
  for (const Position position : {Position::rope, Position::none}) {
    for (const MobaConfig& config : {moba(3, 2, 40), moba(4, 3, 3), moba(1, 5, 6), moba(5, 1, 9), moba(7, 9, 9)}) {
      for (const int64_t length : {29, 10, 3, 1}) expect_reference(random_inputs(3), config, position, length);
    }
  }
}

// Blocks with the same keys have the same means: the oldest are read.
TEST(MobaHeads, TiesGoToTheOldestBlock) {
  Inputs in = random_inputs(4);
  constexpr int64_t kBlock = 3, kOfBlock = kBlock * kKeyHeads * kSize, kOfRow = kTokens * kKeyHeads * kSize;
  for (int64_t row = 0; row < kRows; ++row) {
    auto* const first = in.k.data() + row * kOfRow;
    for (int64_t i = kOfBlock; i < 7 * kOfBlock; ++i) first[i] = first[i % kOfBlock];
  }
  for (const int64_t length : {29, 8, 1}) expect_reference(in, moba(kBlock, 3, 40), Position::none, length);
}

// With all blocks of the document it is softmax attention: the same weights read the same.
TEST(MobaHeads, AllBlocksAreFullAttention) {
  const auto config = [](const std::string& attention) {
    return parse_config<ModelConfig>(
        "{width: 16, layers: 2, heads: 2, mlp: {hidden: 24}, position: {kind: rope}, attention: " + attention + "}",
        "model.yaml");
  };
  const auto documents = random_documents({{24}, {17}}, 11, 1);
  ModelReader softmax(config("{softmax: {carry: {kind: kv, length: 40}}}"), 11, 2, 7);
  ModelReader blocks(config("{kind: moba, moba: {block: 4, top_k: 9, carry: {length: 20}}}"), 11, 2, 7);
  const DocumentNll expected = softmax.read(cut(documents, 7, Pack::pad));
  const DocumentNll got = blocks.read(cut(documents, 7, Pack::pad));
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [place, nll] : got) EXPECT_NEAR(nll, expected.at(place), 1e-10);
}

}  // namespace
}  // namespace quire::test
