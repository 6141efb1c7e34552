#include "layers/mixers/landmark_heads.h"

#include <gtest/gtest.h>

#include "autograd/functions/rotary.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/head_reader.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rotary_angles.h"
#include "tests/support/saved_state.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2, kHeads = 4, kKeyHeads = 2, kSize = 6, kTokens = 27;

using Reader = HeadReader<LandmarkHeads>;

Reader reader_of(const LandmarkConfig& config, Position position = Position::rope, int64_t longest = kTokens) {
  return Reader(DType::f64, kRows, longest, [&](const Scope& scope) {
    return LandmarkHeads(scope, config, {kHeads, kKeyHeads, kSize, kSize}, position, {},
                         std::make_shared<PositionTables>(), Initializer::constant(0));
  });
}

struct Inputs {
  Tensor q, k, v;

  explicit Inputs(uint32_t seed) {
    RandomTensors random(seed);
    q = random.normal({kRows, kTokens, kHeads, kSize}, 2).to(test_device());
    k = random.normal({kRows, kTokens, kKeyHeads, kSize}).to(test_device());
    v = random.normal({kRows, kTokens, kKeyHeads, kSize}).to(test_device());
  }
  Tensor read(Reader& reader, int64_t begin, int64_t end) const {
    return reader.read(part(q, begin, end), part(k, begin, end), part(v, begin, end));
  }
  static Tensor part(const Tensor& x, int64_t begin, int64_t end) { return packed(x.slice(1, begin, end)); }
};

// [R, T, H, D] of a document read in chunks of the given lengths, by token: T lines of R H D values.
std::vector<std::vector<double>> read_in_chunks(Reader reader_, const Inputs& inputs,
                                                const std::vector<int64_t>& chunks) {
  std::vector<std::vector<double>> by_token;
  int64_t begin = 0;
  for (const int64_t length : chunks) {
    const std::vector<double> out = values_of(inputs.read(reader_, begin, begin + length));
    for (int64_t t = 0; t < length; ++t) {
      std::vector<double> line;
      for (int64_t row = 0; row < kRows; ++row) {
        const auto* const from = out.data() + (row * length + t) * kHeads * kSize;
        line.insert(line.end(), from, from + kHeads * kSize);
      }
      by_token.push_back(line);
    }
    begin += length;
  }
  return by_token;
}

void expect_near(const std::vector<std::vector<double>>& got, const std::vector<std::vector<double>>& expected,
                 double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t t = 0; t < got.size(); ++t) {
    for (size_t i = 0; i < got[t].size(); ++i) ASSERT_NEAR(got[t][i], expected[t][i], tolerance) << "token " << t;
  }
}

std::vector<int64_t> chunks_of(int64_t length) {
  std::vector<int64_t> chunks;
  for (int64_t left = kTokens; left > 0; left -= length) chunks.push_back(std::min(left, length));
  return chunks;
}

LandmarkConfig storing(int64_t block, int64_t top_k, int64_t capacity) {
  LandmarkConfig config;
  config.block = block;
  config.top_k = top_k;
  config.carry.length = capacity;
  config.carry.in_training = true;
  return config;
}

// While a document has at most top_k blocks, every block is read at its own position: the grouped softmax of training
// over the whole text, however it is cut.
TEST(LandmarkHeads, FewBlocksReadAsInTraining) {
  for (const int64_t block : {1, 3, 4, 12, 40}) {
    for (const Position position : {Position::rope, Position::none}) {
      SCOPED_TRACE(fmt::format("block {}, {}", block, name_in_config(position)));
      const Inputs inputs(static_cast<uint32_t>(block));
      LandmarkConfig training;
      training.block = block;
      const auto expected = read_in_chunks(reader_of(training, position), inputs, {kTokens});
      for (const BlockPositions positions : {BlockPositions::stingy, BlockPositions::read}) {
        LandmarkConfig config = storing(block, kTokens / (block + 1) + 1, 40);
        config.positions = positions;
        for (const int64_t length : {1, 2, 5, 7, 26, 27}) {
          expect_near(read_in_chunks(reader_of(config, position), inputs, chunks_of(length)), expected, 1e-11);
        }
      }
    }
  }
}

// The lines of tokens between landmarks, [R, T', H, D].
Tensor without_landmarks(const Tensor& x, int64_t period) {
  std::vector<double> lines;
  const std::vector<double> values = values_of(x);
  const int64_t line = x.dim(2) * x.dim(3);
  for (int64_t i = 0; i < x.dim(0) * x.dim(1); ++i) {
    if (i % x.dim(1) % period == period - 1) continue;
    lines.insert(lines.end(), values.begin() + i * line, values.begin() + (i + 1) * line);
  }
  const int64_t tokens = static_cast<int64_t>(lines.size()) / (x.dim(0) * line);
  return Tensor::from(lines, {x.dim(0), tokens, x.dim(2), x.dim(3)}).to(test_device());
}

// As softmax attention to the tokens alone, which keep the positions that landmarks give them.
TEST(LandmarkHeads, IgnoredLandmarksAreSeenByNobody) {
  for (const int64_t block : {1, 3, 4, 26}) {
    for (const Position position : {Position::rope, Position::none}) {
      SCOPED_TRACE(fmt::format("block {}, {}", block, name_in_config(position)));
      LandmarkConfig config;
      config.block = block;
      config.ignore_landmarks = true;
      const Inputs inputs(static_cast<uint32_t>(20 + block));
      Reader reader = reader_of(config, position);
      const Tensor got = inputs.read(reader, 0, kTokens);
      const auto tokens = [&](const Tensor& x, bool rotated) {
        if (!rotated) return without_landmarks(x, block + 1);
        ops::RotaryInputs settings;
        settings.table = Tensor::empty({kTokens, 2, kSize / 2}, DType::f64, test_device());
        ops::rotary_table(settings.table, rotary_frequencies(RopeConfig{}.base, kSize / 2, test_device()), 0, 1);
        Tape tape(false);
        return without_landmarks(rotary(tape, Variable::constant(x), settings).value(), block + 1);
      };
      const bool rotated = position == Position::rope;
      LandmarkConfig softmax;
      softmax.block = 2 * kTokens;  // a landmark is never reached
      Reader plain = reader_of(softmax, Position::none);
      const Tensor expected = plain.read(tokens(inputs.q, rotated), tokens(inputs.k, rotated), tokens(inputs.v, false));
      EXPECT_LT(relative_error(without_landmarks(got, block + 1), expected), 1e-13);
      // Landmarks read as well, up to the token before them.
      const std::vector<double> values = values_of(got);
      EXPECT_NE(values[static_cast<size_t>(block * kHeads * kSize)], 0);
    }
  }
}

TEST(LandmarkHeads, FewerBlocksReadOtherwise) {
  const Inputs inputs(5);
  const auto expected = read_in_chunks(reader_of(storing(3, 7, 40)), inputs, chunks_of(5));
  for (const LandmarkConfig& config : {storing(3, 2, 40), storing(3, 0, 40), storing(3, 3, 3)}) {
    const auto got = read_in_chunks(reader_of(config), inputs, chunks_of(5));
    EXPECT_NE(got.back(), expected.back());
    EXPECT_EQ(got.front(), expected.front());
  }
}

// Logs saved inside a block and loaded into a new pool go on with the same bits.
TEST(LandmarkHeads, GoesOnFromSavedState) {
  for (const LogPlace place : {LogPlace::device, LogPlace::host, LogPlace::file}) {
    if (place == LogPlace::file && !(test_device() == kCpu)) continue;
    LandmarkConfig config = storing(3, 2, 4);
    config.carry.place = place;
    const Inputs inputs(6);
    Reader first = reader_of(config);
    inputs.read(first, 0, 10);
    inputs.read(first, 10, 22);
    Reader second = reader_of(config);
    load_state(second.pool(), saved_state(first.pool()));
    const Batch next = one_segment_from(22, kRows, 5);
    const auto read = [&](Reader& reader) {
      return reader.read(next, Inputs::part(inputs.q, 22, 27), Inputs::part(inputs.k, 22, 27),
                         Inputs::part(inputs.v, 22, 27));
    };
    EXPECT_TRUE(same_bits(read(first), read(second)));
  }
}

TEST(LandmarkHeads, RefusesDocumentsThatAreCut) {
  Reader reader = reader_of(storing(3, 2, 4));
  Batch batch = one_segment(kRows, 5, {1, 1});
  for (int32_t& position : batch.position) position += 7;
  const Tensor q = Tensor::zeros({kRows, 5, kHeads, kSize}, DType::f64, test_device());
  const Tensor k = Tensor::zeros({kRows, 5, kKeyHeads, kSize}, DType::f64, test_device());
  EXPECT_ERROR(reader.read(batch, q, k, k), ErrorKind::config,
               "a document is read from position 7 on without what lies before it");
}

// Appendix D: where its share of the context-miss token is below the cutoff, a query reads nothing that is stored.
TEST(LandmarkHeads, CutoffSkipsStoredBlocks) {
  const Inputs inputs(8);
  LandmarkConfig config = storing(3, 2, 9);
  config.context_miss.enabled = true;
  const auto reads = [&](double cutoff, int64_t top_k) {
    config.context_miss.cutoff = cutoff;
    config.top_k = top_k;
    return read_in_chunks(reader_of(config), inputs, chunks_of(5)).back();
  };
  EXPECT_EQ(reads(1, 2), reads(0, 0));
  EXPECT_NE(reads(0, 2), reads(0, 0));
}

}  // namespace
}  // namespace quire::test
