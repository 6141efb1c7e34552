// Records of event files; tests/integration/tensorboard_test.py reads whole files with the tensorboard package.
#include "trainers/run/event_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/files/file_io.h"
#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// The published check value of CRC-32C, masked.
TEST(EventFile, KnowsItsChecksum) {
  EXPECT_EQ(masked_crc32c("123456789"), std::rotr(0xe3069283U, 15) + 0xa282ead8U);
}

TEST(EventFile, RecordsHaveLengthsAndChecksums) {
  const TemporaryDirectory folder;
  EventFile file(folder.path(), 1);
  file.append({{"step", 3}, {"loss", 1.5}, {"epoch", nullptr}});
  const fs::path path = fs::directory_iterator(folder.path())->path();
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents."));
  const std::string bytes = read_text_file(path);
  const auto number = [&](size_t at, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    return value;
  };
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = number(at, 8);
    EXPECT_EQ(number(at + 8, 4), masked_crc32c(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(number(at + 12 + size, 4), masked_crc32c(records.back()));
    at += size + 16;
  }
  ASSERT_EQ(records.size(), 3U);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(records[2].find("train/loss"), std::string::npos);
  EXPECT_EQ(records[2].find("epoch"), std::string::npos);
}

TEST(EventFile, CountsFiniteValues) {
  const Histogram one = histogram_of(std::vector<double>{2, 2, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(one.limits, std::vector<double>{2});
  EXPECT_EQ(one.counts, std::vector<double>{2});
  EXPECT_EQ(one.sum_of_squares, 8);
  const Histogram spread = histogram_of(std::vector<double>{0, 0.01, 3});
  ASSERT_EQ(spread.limits.size(), 30U);
  EXPECT_EQ(spread.counts.front(), 2);
  EXPECT_EQ(spread.counts.back(), 1);
  EXPECT_EQ(spread.limits.back(), 3);
  EXPECT_TRUE(histogram_of({}).limits.empty());
}

}  // namespace
}  // namespace quire::test
