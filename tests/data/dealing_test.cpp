#include "data/batches/dealing.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace quire {
namespace {

std::vector<int64_t> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// Without inserted tokens, position, place and token are equal.
Piece run(int64_t row, int64_t position, int64_t count, int64_t document, int64_t offset) {
  return {.row = row,
          .position = position,
          .count = count,
          .document = document,
          .offset = offset,
          .place = offset,
          .phase = offset};
}

BatchOptions in_order(int64_t subsequence, int64_t rows, Pack pack) {
  return {.data = {.subsequence = subsequence, .rows = rows, .pack = pack},
          .first_row = 0,
          .last_row = rows,
          .alignment = 1,
          .seed = 1,
          .shuffle = false,
          .endless = false};
}

// Documents of 5, 2, 3 and 1 tokens have 6, 3, 4 and 2 positions.
TEST(Dealing, PadByHand) {
  const std::vector<int64_t> offsets = offsets_of({5, 2, 3, 1});
  const Dealing dealing(offsets, in_order(4, 2, Pack::pad));
  Cursor cursor = dealing.start();
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 4, 0, 0), run(1, 0, 3, 1, 0)}));
  EXPECT_EQ(cursor, (Cursor{2, {{0, 4}, {-1, 0}}}));
  // Document 2 ends exactly with the subsequence: its row is free in the next step.
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 2, 0, 4), run(1, 0, 4, 2, 0)}));
  EXPECT_EQ(cursor, (Cursor{3, {{-1, 0}, {-1, 0}}}));
  EXPECT_FALSE(dealing.done(cursor));
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 2, 3, 0)}));
  EXPECT_TRUE(dealing.done(cursor));
  EXPECT_TRUE(dealing.step(cursor).empty());
}

TEST(Dealing, ConcatByHand) {
  const std::vector<int64_t> offsets = offsets_of({5, 2, 3, 1, 9});
  const Dealing dealing(offsets, in_order(8, 2, Pack::concat));
  Cursor cursor = dealing.start();
  // Row 1 is free at 3, row 0 at 6, then row 1 at 7.
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 6, 0, 0), run(0, 6, 2, 3, 0), run(1, 0, 3, 1, 0),
                                                      run(1, 3, 4, 2, 0), run(1, 7, 1, 4, 0)}));
  EXPECT_EQ(cursor, (Cursor{5, {{-1, 0}, {4, 1}}}));
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(1, 0, 8, 4, 1)}));
  EXPECT_FALSE(dealing.done(cursor));
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(1, 0, 1, 4, 9)}));
  EXPECT_TRUE(dealing.done(cursor));
}

TEST(Dealing, ConcatKeepsTheAlignment) {
  const std::vector<int64_t> offsets = offsets_of({5, 2, 3, 1});
  BatchOptions options = in_order(8, 1, Pack::concat);
  options.alignment = 4;
  const Dealing dealing(offsets, options);
  Cursor cursor = dealing.start();
  // Six positions, the next multiple is 8: full. Then three positions, and the next document at 4.
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 6, 0, 0)}));
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 3, 1, 0), run(0, 4, 4, 2, 0)}));
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 2, 3, 0)}));
}

TEST(Dealing, TiesGoToTheLowestRow) {
  const std::vector<int64_t> offsets = offsets_of({1, 1, 1, 1, 1, 1});
  const Dealing dealing(offsets, in_order(4, 3, Pack::concat));
  Cursor cursor = dealing.start();
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 2, 0, 0), run(0, 2, 2, 3, 0), run(1, 0, 2, 1, 0),
                                                      run(1, 2, 2, 4, 0), run(2, 0, 2, 2, 0), run(2, 2, 2, 5, 0)}));
}

TEST(Dealing, RowsRunOnIntoTheNextEpoch) {
  const std::vector<int64_t> offsets = offsets_of({1, 3});
  BatchOptions options = in_order(4, 3, Pack::pad);
  options.endless = true;
  const Dealing dealing(offsets, options);
  Cursor cursor = dealing.start();
  EXPECT_EQ(dealing.step(cursor), (std::vector<Piece>{run(0, 0, 2, 0, 0), run(1, 0, 4, 1, 0), run(2, 0, 2, 0, 0)}));
  EXPECT_EQ(cursor.next_place, 3);
  EXPECT_FALSE(dealing.done(cursor));
  EXPECT_EQ(dealing.step(cursor).front().document, 1);
}

TEST(Cursor, SurvivesJson) {
  const Cursor cursor{int64_t{1} << 40, {{3, 17}, {-1, 0}}};
  EXPECT_EQ(cursor_from_json(cursor_to_json(cursor)), cursor);
  EXPECT_ERROR(cursor_from_json("{\"rows\": []}"), ErrorKind::checkpoint, "cursor");
  EXPECT_ERROR(cursor_from_json("nonsense"), ErrorKind::checkpoint, "cursor");
}

TEST(Cursor, MustFitTheCorpusAndTheRows) {
  const std::vector<int64_t> offsets = offsets_of({5, 2});
  const Dealing dealing(offsets, in_order(4, 2, Pack::pad));
  EXPECT_NO_THROW(dealing.check({2, {{0, 4}, {-1, 0}}}));
  EXPECT_ERROR(dealing.check({2, {{0, 4}}}), ErrorKind::checkpoint, "has 1 rows, the run has 2");
  for (const Cursor& wrong : {Cursor{2, {{0, 6}, {-1, 0}}}, Cursor{2, {{2, 1}, {-1, 0}}}, Cursor{3, {{-1, 0}, {-1, 0}}},
                              Cursor{-1, {{-1, 0}, {-1, 0}}}, Cursor{2, {{-2, 0}, {-1, 0}}}}) {
    EXPECT_ERROR(dealing.check(wrong), ErrorKind::checkpoint, "does not fit the corpus");
  }
}

}  // namespace
}  // namespace quire
