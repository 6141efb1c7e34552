#include "layers/position/token_shift.h"

#include <gtest/gtest.h>

#include "layers/state/state_pool.h"
#include "tests/support/hand_batch.h"

namespace quire::test {
namespace {

using Rows = std::vector<int32_t>;

TEST(ShiftRows, TheTokenBeforeIsOfTheSameDocument) {
  const Batch batch = batch_of({{0, 0, 1, 1, -1}, {-1, -1, -1, -1, -1}, {0, 0, 0, 0, 0}}, {0, 0, 1});
  const std::vector<Segment> segments = segments_of(batch);
  const ShiftRows rows = shift_rows(batch, segments, {0, 0, 1});
  EXPECT_EQ(rows.before, (Rows{0, 1, -1, 3, -1, -1, -1, -1, -1, -1, -1, 1, 2, 3, 4}));
  EXPECT_EQ(rows.last, (Rows{4, -1, 5}));
  EXPECT_EQ(rows.written, (std::vector<uint8_t>{1, 0, 1}));
}

TEST(ShiftRows, InsertedTokensAreNobodysTokenBefore) {
  Batch batch = batch_of({{0, 0, 0, 0}, {0, 0, 0, 0}}, {0, 0});
  batch.inserted = {1, 0, 0, 1, 1, 1, 1, 1};
  const std::vector<Segment> segments = segments_of(batch);
  const ShiftRows rows = shift_rows(batch, segments, {0, 1});
  EXPECT_EQ(rows.before, (Rows{0, 0, 2, 3, -1, -1, -1, -1}));
  EXPECT_EQ(rows.last, (Rows{3, -1}));
  EXPECT_EQ(rows.written, (std::vector<uint8_t>{1, 0}));
}

// Passes on what the mixer is given: its input and the normalisation.
class Given final : public Part {
 public:
  Variable operator()(const Forward&, const PartInput& input) const override { return input.x; }
};

// Two documents of 7 and 4 tokens in pieces of 3, in one row after another; feature e of token t of document d is
// 100 d + 10 t + e.
TEST(ShiftedMixer, CarriesTheLastTokenAlongItsDocument) {
  ParameterStore store;
  Declarations declared;
  const Scope scope(store, declared, DType::f64, "mixer");
  const ShiftedMixer mixer(scope, 2, std::make_unique<Given>());
  StatePool state(declared.state, 1, 3, DType::f64, kCpu);
  const std::vector<std::vector<int32_t>> pieces{{0, 0, 0}, {0, 0, 0}, {0, 1, 1}, {0, 0, -1}};
  int64_t document = 0;
  int64_t token = 0;
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    const Batch batch = batch_of({pieces[piece]}, {static_cast<uint8_t>(piece == 0 ? 1 : 0)});
    std::vector<double> x;
    std::vector<double> expected;
    for (size_t t = 0; t < 3; ++t) {
      if (t > 0 && pieces[piece][t] > pieces[piece][t - 1]) {
        ++document;
        token = 0;
      }
      const double value = static_cast<double>(100 * document + 10 * token);
      const double before = token == 0 ? 0 : value - 10;
      const double one = token == 0 ? 0 : 1;
      x.insert(x.end(), {value, value + 1, value + 2});
      expected.insert(expected.end(), {before, before + one, value + 2});
      ++token;
    }
    state.begin_step(batch);
    Tape tape(false);
    const Forward f{.tape = tape, .batch = batch, .state = state.view(0, 1)};
    const Variable y = mixer(f, {Variable::constant(Tensor::from(x, {1, 3, 3})), nullptr});
    std::vector<double> values = y.value().to_vector<double>();
    if (piece == 3) {  // without padding
      values.resize(6);
      expected.resize(6);
    }
    EXPECT_EQ(values, expected) << "piece " << piece;
    state.commit();
  }
}

}  // namespace
}  // namespace quire::test
