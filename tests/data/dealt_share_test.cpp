#include "data/batches/dealt_share.h"

#include <gtest/gtest.h>

#include <set>

#include "data/batches/dealing.h"
#include "data/corpus/split_list.h"

namespace quire {
namespace {

// Computes the share with Dealing itself.
DealtShare stepped(const ReadingList& list, std::span<const int64_t> offsets, const BatchOptions& options,
                   int64_t steps) {
  const Dealing dealing(offsets, options);
  Cursor cursor = dealing.start();
  DealtShare share;
  for (int64_t step = 0; step < steps; ++step) {
    for (const Piece& piece : dealing.step(cursor)) {
      share.tokens +=
          options.insertion.tokens_before(piece.place + piece.count) - options.insertion.tokens_before(piece.place);
    }
  }
  share.documents = cursor.next_place;
  EXPECT_GT(list.documents(), 0);
  return share;
}

TEST(DealtShare, IsWhatTheStepsDealOut) {
  const std::vector<int64_t> offsets{0, 300, 307, 397, 398, 439, 589, 589, 602};
  for (const Pack pack : {Pack::pad, Pack::concat}) {
    for (const int64_t period : {0, 4}) {
      for (const int64_t steps : {1, 2, 7, 40, 200}) {
        BatchOptions options{.data = {.subsequence = 20, .rows = 3, .pack = pack}, .last_row = 3, .seed = 5};
        if (period > 0) options.insertion = {.period = period, .ids = 1};
        if (pack == Pack::concat) options.alignment = 5;
        const SplitList list(offsets, options.seed, options.shuffle);
        const DealtShare share = dealt_share(list, options, steps);
        const DealtShare expected = stepped(list, offsets, options, steps);
        EXPECT_EQ(share.tokens, expected.tokens) << steps << " " << period;
        EXPECT_EQ(share.documents, expected.documents) << steps << " " << period;
        EXPECT_TRUE(share.exact);
      }
    }
  }
}

TEST(DealtShare, IsInProportionBeyondALimit) {
  const std::vector<int64_t> offsets{0, 30, 45, 60, 100};
  const BatchOptions options{.data = {.subsequence = 10, .rows = 2}, .last_row = 2};
  const SplitList list(offsets, options.seed, true);
  const DealtShare exact = dealt_share(list, options, 5000);
  const DealtShare about = dealt_share(list, options, 5000, 400);
  EXPECT_FALSE(about.exact);
  EXPECT_NEAR(static_cast<double>(about.tokens), static_cast<double>(exact.tokens),
              0.01 * static_cast<double>(exact.tokens));
  EXPECT_NEAR(static_cast<double>(about.documents), static_cast<double>(exact.documents),
              0.01 * static_cast<double>(exact.documents));
}

}  // namespace
}  // namespace quire
