#include "core/insertion.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

// Lists the content of each model position, one token after the other: the token's number, or -1 - id.
std::vector<int64_t> read_one_by_one(const Insertion& insertion, int64_t tokens) {
  std::vector<int64_t> read;
  int64_t inserted = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    if (insertion.any() && token > 0 && token % insertion.period == 0) read.push_back(-1 - inserted++ % insertion.ids);
    read.push_back(token);
  }
  // An inserted token also stands at the end, where it predicts EOS.
  const bool due = insertion.any() && tokens > 0 && tokens % insertion.period == 0;
  if (insertion.predicted && due) read.push_back(-1 - inserted % insertion.ids);
  return read;
}

TEST(Insertion, PositionsAndTokensAgreeWithReadingOneByOne) {
  for (const Insertion& insertion :
       {Insertion{}, Insertion{.period = 4, .ids = 0}, Insertion{.period = 1, .ids = 1},
        Insertion{.period = 1, .ids = 3}, Insertion{.period = 2, .ids = 1}, Insertion{.period = 3, .ids = 2},
        Insertion{.period = 7, .ids = 5}, Insertion{.period = 1, .ids = 2, .predicted = true},
        Insertion{.period = 3, .ids = 2, .predicted = true}}) {
    for (int64_t tokens = 0; tokens < 40; ++tokens) {
      const std::vector<int64_t> read = read_one_by_one(insertion, tokens);
      ASSERT_EQ(insertion.positions(tokens), static_cast<int64_t>(read.size())) << tokens;
      int64_t before = 0;
      for (size_t i = 0; i < read.size(); ++i) {
        const auto position = static_cast<int64_t>(i);
        EXPECT_EQ(insertion.tokens_before(position), before) << position;
        ASSERT_EQ(insertion.is_inserted(position), read[i] < 0) << position;
        if (read[i] < 0) {
          EXPECT_EQ(insertion.id_at(position), -1 - read[i]) << position;
        } else {
          EXPECT_EQ(insertion.position_of(read[i]), position);
          ++before;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
