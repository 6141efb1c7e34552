#include "trainers/run/stop_conditions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using Clock = StopConditions::Clock;

TEST(StopConditions, NothingAsksAtFirst) {
  const test::TemporaryDirectory folder;
  const StopSignals signals;
  StopConditions conditions(signals, Clock::now(), folder.path(), Duration{3600});
  EXPECT_EQ(conditions.reason(), "");
  std::raise(SIGUSR1);
  EXPECT_EQ(conditions.reason(), "SIGUSR1");
}

// Ranks that are threads of one process have one each.
TEST(StopConditions, ARankMayBeAskedInItsOwnWay) {
  struct Asked : public StopRequest {
    std::string reason() const override { return asked ? "the other host shuts down" : ""; }
    bool asked = false;
  };
  const test::TemporaryDirectory folder;
  Asked mine;
  const Asked other;
  StopConditions of_mine(mine, Clock::now(), folder.path(), std::nullopt);
  StopConditions of_other(other, Clock::now(), folder.path(), std::nullopt);
  mine.asked = true;
  EXPECT_EQ(of_mine.reason(), "the other host shuts down");
  EXPECT_EQ(of_other.reason(), "");
}

TEST(StopConditions, WallTimeCountsFromTheStart) {
  const test::TemporaryDirectory folder;
  const StopSignals signals;
  StopConditions late(signals, Clock::now() - std::chrono::minutes(90), folder.path(), Duration{5400});
  EXPECT_EQ(late.reason(), "run.max_wall_time: 1h30m");
  StopConditions early(signals, Clock::now() - std::chrono::minutes(89), folder.path(), Duration{5400});
  EXPECT_EQ(early.reason(), "");
  StopConditions without(signals, Clock::now() - std::chrono::hours(1000), folder.path(), std::nullopt);
  EXPECT_EQ(without.reason(), "");
}

TEST(StopConditions, TheFileIsSeenWithinASecondAndRemoved) {
  const test::TemporaryDirectory folder;
  const StopSignals signals;
  StopConditions conditions(signals, Clock::now(), folder.path(), std::nullopt);
  EXPECT_EQ(conditions.reason(), "");
  conditions.remove_file();  // nothing there: nothing to do
  const std::string file = (folder / "STOP").string();
  std::ofstream(file) << "";
  const auto created = Clock::now();
  while (conditions.reason().empty() && Clock::now() - created < std::chrono::seconds(10)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(conditions.reason(), file);
  conditions.remove_file();
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(conditions.reason(), file);  // a request remains
}

}  // namespace
}  // namespace quire
