// The spans and weights of quire trace are those that the weights of the checkpoint give, computed by brute force.
#include <fmt/format.h>

#include <functional>
#include <set>

#include "core/insertion.h"
#include "tests/integration/first_layer.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

constexpr int64_t kHeads = 2, kSubsequence = 256, kTokens = 4096, kBos = 256, kVocabulary = 258;

// Words of random letters: no period that a cut could hide behind.
std::string random_text(int64_t length, uint32_t state) {
  std::string text;
  for (int64_t i = 0; i < length; ++i) {
    state = state * 1664525U + 1013904223U;
    text += (state >> 20) % 6 == 0 ? ' ' : static_cast<char>('a' + (state >> 24) % 26);
  }
  return text;
}

// A span in model positions, and the score that decides for it.
struct Candidate {
  int64_t begin, end;
  double score;
};

// Holds what a query and head may choose from in the order of positions, how much of it, and what weights are made of.
struct Expected {
  std::vector<Candidate> candidates;
  size_t top_k;
  std::function<double(const Candidate&)> mass;   // unnormalised weight
  std::function<double(double retrieved)> local;  // from the sum of the masses that were retrieved
};
using Expect = std::function<Expected(const FirstLayer& layer, int64_t position, int64_t head)>;

class TraceReading : public ::testing::Test {
 protected:
  void SetUp() override { write_text(tiny_ / "text.txt", text_); }

  nlohmann::json traced(const std::vector<std::string>& overrides) {
    std::vector<std::string> all{"schedule.steps=3",  "data.subsequence=256",
                                 "run.precision=f32", "model.position.kind=none",
                                 "optimizer.lr=3e-2", "model.attention.softmax.carry={kind: none, length: none}"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const ProgramResult trained = tiny_.train("run", all);
    EXPECT_EQ(trained.code, 0) << trained.err;
    const ProgramResult result =
        run_quire({"trace", (tiny_ / "run").string(), "--prompt-file", (tiny_ / "text.txt").string(), "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }

  // The weights of every token and head sum to one.
  void expect_sums(const nlohmann::json& trace) const {
    ASSERT_EQ(trace["tokens"].size(), kTokens);
    int64_t reads = 0;
    for (const auto& token : trace["tokens"]) {
      for (const auto& read : token["reads"]) {
        double sum = read["local"].get<double>() + read["left_out"].get<double>();
        for (const auto& span : read["spans"]) {
          sum += span[2].get<double>();
          EXPECT_LE(span[0], span[1]);
          EXPECT_LE(span[1], token["position"]);
        }
        ASSERT_NEAR(sum, 1, 1e-5) << token;
        ++reads;
      }
    }
    EXPECT_GT(reads, kTokens * 9 / 10);
  }

  // The reads of the first layer are those that are expected; ties may go either way. It compares every third token,
  // and so every place of a subsequence.
  void expect_reads(const nlohmann::json& trace, const Insertion& insertion, const Expect& expect) const {
    FirstLayer layer(tiny_.checkpoint("run", 3), kHeads, kVocabulary);
    std::vector<int32_t> ids;
    for (int64_t position = 0; position < insertion.positions(kTokens); ++position) {
      const int64_t token = insertion.tokens_before(position);
      const int64_t id = insertion.is_inserted(position) ? kVocabulary + insertion.id_at(position)
                         : token == 0                    ? kBos
                                                         : static_cast<uint8_t>(text_[static_cast<size_t>(token - 1)]);
      ids.push_back(static_cast<int32_t>(id));
    }
    layer.read(ids);
    int64_t compared = 0;
    for (const auto& token : trace["tokens"]) {
      if (token["position"].get<int64_t>() % 3 != 0) continue;
      const int64_t position = insertion.position_of(token["position"].get<int64_t>());
      std::map<int64_t, nlohmann::json> reads;
      for (const auto& read : token["reads"]) {
        if (read["layer"] == 0) reads[read["head"].get<int64_t>()] = read;
      }
      for (int64_t head = 0; head < kHeads; ++head) {
        const Expected expected = expect(layer, position, head);
        ASSERT_EQ(reads.count(head), expected.candidates.empty() ? 0U : 1U) << position;
        if (expected.candidates.empty()) continue;
        expect_read(reads[head], expected, insertion, fmt::format("position {} head {}", position, head));
        ++compared;
      }
    }
    EXPECT_GT(compared, kTokens / 3 * kHeads * 9 / 10);
  }

 private:
  static void expect_read(const nlohmann::json& read, const Expected& expected, const Insertion& insertion,
                          const std::string& where) {
    std::vector<double> scores;
    for (const Candidate& one : expected.candidates) scores.push_back(one.score);
    const size_t count = std::min(expected.top_k, scores.size());
    std::nth_element(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(count) - 1, scores.end(),
                     std::greater<>());
    ASSERT_EQ(read["spans"].size(), count) << where;
    EXPECT_EQ(read["left_out"], 0) << where;
    double retrieved = 0;
    std::vector<double> masses;
    std::set<int64_t> begins;
    for (const auto& span : read["spans"]) {
      const auto begin = span[0].get<int64_t>();
      const auto found = std::lower_bound(
          expected.candidates.begin(), expected.candidates.end(), begin,
          [&](const Candidate& one, int64_t value) { return insertion.tokens_before(one.begin) < value; });
      ASSERT_NE(found, expected.candidates.end()) << where << " " << span;
      ASSERT_EQ(insertion.tokens_before(found->begin), begin) << where << " " << span;
      ASSERT_EQ(insertion.tokens_before(found->end), span[1].get<int64_t>()) << where << " " << span;
      EXPECT_GE(found->score, scores[count - 1] - 1e-4) << where << " " << span;
      begins.insert(begin);
      masses.push_back(expected.mass(*found));
      retrieved += masses.back();
    }
    EXPECT_EQ(begins.size(), count) << where;
    const double local = expected.local(retrieved);
    EXPECT_NEAR(read["local"].get<double>(), local, 1e-5) << where;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(read["spans"][i][2].get<double>(), (1 - local) * masses[i] / retrieved, 1e-5) << where;
    }
  }

 protected:
  TinyRun tiny_;
  std::string text_ = random_text(kTokens - 1, 7);
};

double exp_of_score(const Candidate& one) {
  return std::exp(one.score);
}

// Every token of earlier subsequences.
std::vector<Candidate> earlier_tokens(const FirstLayer& layer, int64_t position, int64_t head) {
  std::vector<Candidate> all;
  for (int64_t key = 0; key < position / kSubsequence * kSubsequence; ++key) {
    all.push_back({key, key + 1, layer.logit(position, key, head)});
  }
  return all;
}

TEST_F(TraceReading, OfSearchedMemoriesWithAGate) {
  const nlohmann::json trace = traced({"model.memory=[{kind: knn, layers: [0], carry: {length: 8192}, top_k: 6}]"});
  expect_sums(trace);
  expect_reads(trace, {}, [](const FirstLayer& layer, int64_t position, int64_t head) {
    const double bias = layer.weight("blocks.0.attention.memory.0.gate")[static_cast<size_t>(head)];
    return Expected{earlier_tokens(layer, position, head), 6, exp_of_score,
                    [=](double) { return 1 / (1 + std::exp(bias)); }};
  });
}

TEST_F(TraceReading, OfSearchedMemoriesInOneSoftmax) {
  const nlohmann::json trace =
      traced({"model.memory=[{kind: knn, layers: [0], carry: {length: 8192}, top_k: 6, combine: joint}]"});
  expect_sums(trace);
  expect_reads(trace, {}, [](const FirstLayer& layer, int64_t position, int64_t head) {
    const double local = layer.mass(position, position / kSubsequence * kSubsequence, position + 1, head);
    return Expected{earlier_tokens(layer, position, head), 6, exp_of_score,
                    [=](double found) { return local / (local + found); }};
  });
}

// Blocks of 15 tokens and their landmark, of earlier subsequences; and the sum over the gates of the subsequence.
Expected landmark_blocks(const FirstLayer& layer, int64_t position, int64_t head) {
  constexpr int64_t kPeriod = 16;
  std::vector<Candidate> all;
  const int64_t begin = position / kSubsequence * kSubsequence, own = position / kPeriod * kPeriod;
  for (int64_t block = 0; block < begin; block += kPeriod) {
    all.push_back({block, block + kPeriod, layer.logit(position, block + kPeriod - 1, head)});
  }
  double local = layer.mass(position, own, position + 1, head);
  for (int64_t mark = begin + kPeriod - 1; mark < own; mark += kPeriod) {
    local += layer.mass(position, mark, mark + 1, head);
  }
  return {all, 3, exp_of_score, [=](double found) { return local / (local + found); }};
}

TEST_F(TraceReading, OfLandmarks) {
  const nlohmann::json trace = traced({"model.attention={kind: landmark, landmark: {block: 15, top_k: 3}}"});
  expect_sums(trace);
  expect_reads(trace, {.period = 15, .ids = 1}, landmark_blocks);
}

// The context-miss token's share of the subsequence's gates is what stored blocks divide among themselves.
TEST_F(TraceReading, OfLandmarksBehindTheContextMissToken) {
  const nlohmann::json trace =
      traced({"model.attention={kind: landmark, landmark: {block: 15, top_k: 3, context_miss: {enabled: true}}}"});
  expect_sums(trace);
  expect_reads(trace, {.period = 15, .ids = 1}, [](const FirstLayer& layer, int64_t position, int64_t head) {
    Expected expected = landmark_blocks(layer, position, head);
    const double miss = std::exp(layer.learned_logit(position, "blocks.0.attention.context_miss", head));
    const auto kept = expected.local;
    expected.local = [=](double) { return kept(miss); };
    return expected;
  });
}

TEST_F(TraceReading, OfBlocksFoundByTheirMeans) {
  const nlohmann::json trace =
      traced({"model.attention={kind: moba, moba: {block: 16, top_k: 3, carry: {length: 512}}}"});
  expect_sums(trace);
  expect_reads(trace, {}, [](const FirstLayer& layer, int64_t position, int64_t head) {
    std::vector<Candidate> all;
    const int64_t own = position / 16 * 16;
    for (int64_t block = 0; block < own; block += 16) {
      all.push_back({block, block + 16, layer.mean_logit(position, block, block + 16, head)});
    }
    const auto mass = [&layer, position, head](const Candidate& block) {
      return layer.mass(position, block.begin, block.end, head);
    };
    const double local = layer.mass(position, own, position + 1, head);
    return Expected{all, 2, mass, [=](double found) { return local / (local + found); }};
  });
}

// Its scores come from layers below, which no brute force here repeats; its chunks are whole and all heads share them.
TEST_F(TraceReading, OfChunksThatARetrieverChooses) {
  const nlohmann::json trace = traced({"model.stack={kind: drt, drt: {chunk: 15, top_k: 2, groups: 1}}"});
  expect_sums(trace);
  ASSERT_EQ(trace["layers"].size(), 1U);
  EXPECT_TRUE(trace["layers"][0]["heads"].is_null());
  for (const auto& token : trace["tokens"]) {
    for (const auto& read : token["reads"]) {
      EXPECT_TRUE(read["head"].is_null());
      for (const auto& span : read["spans"]) {
        EXPECT_EQ(span[0].get<int64_t>() % 15, 0);
        EXPECT_EQ(span[1].get<int64_t>() - span[0].get<int64_t>(), 15);
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
