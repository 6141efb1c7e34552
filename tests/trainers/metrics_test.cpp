#include "trainers/run/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "core/files/file_io.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

TEST(Metrics, OneObjectPerLineInTheGivenOrder) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "metrics.jsonl";
  MetricsLog log(path);
  log.append({{"step", 1}, {"loss", 2.5}, {"alpha", "a\xff"}});
  log.append({{"step", 2}, {"loss", std::nan("")}, {"grad_norm", INFINITY}});
  // Read while the log is still open: every line is written out at once.
  EXPECT_EQ(read_text_file(path),
            "{\"step\":1,\"loss\":2.5,\"alpha\":\"a\ufffd\"}\n{\"step\":2,\"loss\":null,\"grad_norm\":null}\n");
}

TEST(Metrics, TruncateDropsLaterSteps) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "metrics.jsonl";
  truncate_metrics_after(path, 5);  // nothing there: nothing to do
  {
    MetricsLog log(path);
    for (int step = 1; step <= 10; ++step) log.append({{"step", step}, {"loss", 0.1 * step}});
  }
  const std::string before = read_text_file(path);
  truncate_metrics_after(path, 10);
  EXPECT_EQ(read_text_file(path), before);
  truncate_metrics_after(path, 4);
  EXPECT_EQ(read_metrics(path).size(), 4U);
  EXPECT_EQ(read_text_file(path), before.substr(0, before.find("{\"step\":5")));
  MetricsLog(path).append({{"step", 5}});
  EXPECT_EQ(read_metrics(path).back().at("step"), 5);
}

TEST(Metrics, ATornLastLineIsDropped) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "metrics.jsonl";
  std::ofstream(path) << "{\"step\":1}\n{\"step\":2,\"lo";
  EXPECT_EQ(read_metrics(path).size(), 1U);
  MetricsLog(path).append({{"step", 2}});
  EXPECT_EQ(read_text_file(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(Metrics, OtherDamageIsAnErrorWithItsLine) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "metrics.jsonl";
  std::ofstream(path) << "{\"step\":1}\nrubbish\n{\"step\":2}\n";
  try {
    read_metrics(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_EQ(std::string(error.what()), path.string() + ":2: not a JSON object; remove this line");
  }
}

TEST(Metrics, WhatIsNoMetricsFileIsRefusedUnread) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "metrics.jsonl";
  const auto expect_data_error = [&](const std::string& part, const auto& work) {
    try {
      work();
      FAIL() << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  std::ofstream(path) << "{\"step\":1}\n";
  std::filesystem::resize_file(path, uintmax_t{20} << 30);
  expect_data_error(":2: a line of more than", [&] { read_metrics(path); });
  expect_data_error(":2: a line of more than", [&] { MetricsLog log(path); });
  EXPECT_EQ(std::filesystem::file_size(path), uintmax_t{20} << 30);
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_data_error("is a FIFO", [&] { read_metrics(path); });
  expect_data_error("is a FIFO", [&] { MetricsLog log(path); });
}

TEST(Metrics, LinesAcrossBuffersAreWhole) {
  const test::TemporaryDirectory folder;
  const auto path = folder / "metrics.jsonl";
  const std::string long_text((size_t{3} << 20) + 17, 'x');
  {
    MetricsLog log(path);
    for (int step = 1; step <= 3; ++step) log.append({{"step", step}, {"text", long_text}});
  }
  EXPECT_EQ(read_metrics(path).size(), 3U);
  EXPECT_EQ(read_metrics(path).back().at("text"), long_text);
  EXPECT_EQ(last_logged_step(path, 2), 2);
  std::ofstream(path, std::ios::app) << "{\"step\":4,";
  MetricsLog(path).append({{"step", 4}});
  EXPECT_EQ(last_logged_step(path, 100), 4);
}

TEST(Metrics, WhatCannotBeOpenedIsADiskError) {
  const test::TemporaryDirectory folder;
  try {
    const MetricsLog log(folder / "absent" / "metrics.jsonl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::disk);
  }
}

}  // namespace
}  // namespace quire
