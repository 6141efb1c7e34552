// Compares the model of scaling with times that are computed by hand.
#include "trainers/plan/scaling.h"

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "trainers/cli/link_speed.h"

namespace quire {
namespace {

using Bucket = StepExchange::Bucket;

Cluster cluster(ExchangeKind kind, int64_t ranks_per_host) {
  return {.ranks_per_host = ranks_per_host,
          .within_host = {.bandwidth = 1000, .latency = 0.5},
          .between_hosts = {.bandwidth = 100, .latency = 3},
          .control_latency = 0.25,
          .kind = kind};
}

TEST(ScalingModel, TimeOfARing) {
  const Bucket even{.bytes = 4800, .min_part = 1200, .max_part = 1200};
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 8).pass(1, even), 0);
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 8).pass(4, even), 3 * 0.5 + 3.6);
  // Four hosts with one rank: every hop goes to another host.
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 1).pass(4, even), 3 * 3 + 36);
  // Two hosts with two rings; two links of 100 are slower than one of 1000.
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 2).pass(4, even), 2 * 0.5 + 3 + 3600.0 / 200);
  // With sixteen links these are faster, and the link within the host limits.
  const Bucket of_32{.bytes = 3200, .min_part = 100, .max_part = 100};
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 16).pass(32, of_32), 30 * 0.5 + 3 + 3.1);
  // The second host has one rank, and one link for all rings.
  const Bucket of_three{.bytes = 3000, .min_part = 1000, .max_part = 1000};
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 2).pass(3, of_three), 0.5 + 3 + 20);
  // All of a bucket belongs to one rank: every link carries it whole.
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 8).pass(4, {.bytes = 4800, .min_part = 0, .max_part = 4800}),
                   3 * 0.5 + 4.8);
}

TEST(ScalingModel, TimeOfExchangesInPairs) {
  const Bucket even{.bytes = 4800, .min_part = 1200, .max_part = 1200};
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::pairwise, 8).pass(4, even), 3 * (0.5 + 1.2));
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::pairwise, 2).pass(4, even), (0.5 + 1.2) + 2 * (3 + 12));
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::pairwise, 1).pass(4, even), 3 * (3 + 12));
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::pairwise, 8).pass(4, {.bytes = 4800, .min_part = 0, .max_part = 4800}),
                   3 * (0.5 + 4.8));
}

TEST(ScalingModel, TimeOfSums) {
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 8).all_reduce(4, 4000), 2 * (3 * 0.5 + 3));
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 8).host_exchange(1), 0);
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 8).host_exchange(4), 0.5);
  EXPECT_DOUBLE_EQ(cluster(ExchangeKind::ring, 8).host_exchange(5), 0.75);
}

// A pass takes 2 s; buckets are ready at a third, at two thirds and at the end of the sweep.
TEST(ScalingModel, ASweepHidesAllButItsEnd) {
  const Cluster links{.within_host = {.bandwidth = 4000, .latency = 1}};
  const StepExchange exchange{.ranks = 2, .buckets = {3, Bucket{.bytes = 8000, .min_part = 4000, .max_part = 4000}}};
  const GradientOverlap slow = gradient_overlap(links, exchange, 9);
  EXPECT_DOUBLE_EQ(slow.exchange, 6);
  EXPECT_DOUBLE_EQ(slow.hidden, 4);
  EXPECT_DOUBLE_EQ(slow.early, 2.0 / 3);
  const GradientOverlap quick = gradient_overlap(links, exchange, 3);
  EXPECT_DOUBLE_EQ(quick.hidden, 2);
  EXPECT_DOUBLE_EQ(quick.early, 1.0 / 3);
  EXPECT_DOUBLE_EQ(gradient_overlap(links, exchange, 0).hidden, 0);
}

class ScalingOfARun : public ::testing::Test {
 protected:
  ScalingOfARun() {
    load_backends();
    config_ = parse_config<RunConfig>(
        "run: {name: scaling, device: cpu}\n"
        "data: {corpus: none.h5, vocabulary: 300, subsequence: 50, rows: 12}\n"
        "model: {width: 64, layers: 4, heads: 2, position: {kind: rope}, mlp: {hidden: 256}, attention: {softmax: "
        "{carry: {kind: none}}}}",
        "scaling.yaml", {});
  }
  ScalingPoint strong(int64_t ranks) { return ScalingModel(config_, links_, compute_).strong(ranks); }
  ScalingPoint weak(int64_t ranks) { return ScalingModel(config_, links_, compute_).weak(ranks, 2); }

  RunConfig config_;
  Cluster links_{.ranks_per_host = 4,
                 .within_host = {.bandwidth = 1e9, .latency = 1e-5},
                 .between_hosts = {.bandwidth = 2e8, .latency = 1e-4},
                 .control_latency = 1e-5};
  ComputeTime compute_{.fixed = 0.01, .row = 0.02, .backward = 0.5};
};

TEST_F(ScalingOfARun, OneRankExchangesNothing) {
  const ScalingPoint one = strong(1);
  EXPECT_DOUBLE_EQ(one.step(), 0.25);
  EXPECT_DOUBLE_EQ(one.tokens_per_second, 12 * 50 / 0.25);
  EXPECT_DOUBLE_EQ(one.efficiency, 1);
  EXPECT_EQ(one.exchange.bytes_sent(), 0);
  EXPECT_EQ(one.exchange.collectives(), 0);
}

// Links that take no time leave what rows and the fixed part of a step cost.
TEST_F(ScalingOfARun, RowsThatDoNotDivideCostEfficiency) {
  links_ = {.ranks_per_host = 4, .within_host = {1e30, 0}, .between_hosts = {1e30, 0}};
  const ScalingPoint five = strong(5);
  EXPECT_EQ(five.min_rows, 2);
  EXPECT_EQ(five.max_rows, 3);
  EXPECT_EQ(five.hosts, 2);
  EXPECT_NEAR(five.step(), 0.07, 1e-9);
  EXPECT_NEAR(five.efficiency, 0.25 / 0.07 / 5, 1e-9);
  const ScalingPoint idle = strong(24);
  EXPECT_EQ(idle.min_rows, 0);
  EXPECT_EQ(idle.max_rows, 1);
  EXPECT_NEAR(idle.efficiency, 0.25 / 0.03 / 24, 1e-9);
  for (const int64_t ranks : {2, 5, 24}) {
    EXPECT_NEAR(weak(ranks).efficiency, 1, 1e-9);
    EXPECT_NEAR(weak(ranks).tokens_per_second, static_cast<double>(ranks) * 2 * 50 / 0.05, 1e-3);
  }
}

TEST_F(ScalingOfARun, MoreRanksAndSlowerLinksCostMore) {
  for (const ExchangeKind kind : {ExchangeKind::ring, ExchangeKind::pairwise}) {
    links_.kind = kind;
    ScalingPoint before = weak(1);
    for (const int64_t ranks : {2, 4, 8, 32, 128}) {
      const ScalingPoint now = weak(ranks);
      EXPECT_LT(now.efficiency, before.efficiency) << ranks;
      EXPECT_GT(now.exchange.bytes_sent(), before.exchange.bytes_sent()) << ranks;
      EXPECT_GT(now.exchange_time, before.exchange_time) << ranks;
      EXPECT_LE(now.hidden, now.exchange_time / 2) << ranks;
      EXPECT_LE(now.overlap, 1) << ranks;
      EXPECT_LT(strong(ranks).efficiency, strong(1).efficiency) << ranks;
      before = now;
    }
    for (Link* const link : {&links_.within_host, &links_.between_hosts}) {
      const Link usual = *link;
      const double step = weak(16).step();
      link->bandwidth /= 10;
      link->latency *= 10;
      EXPECT_GT(weak(16).step(), step);
      *link = usual;
    }
  }
}

// Gradients leave in the sweep of the last block of rows, which is too short here.
TEST_F(ScalingOfARun, BlocksOfRowsHideLess) {
  compute_.row = 1e-3;
  const ScalingPoint whole = weak(4);
  config_.data.accumulate = 2;
  const ScalingPoint blocks = weak(4);
  EXPECT_LT(blocks.hidden, whole.hidden);
  EXPECT_EQ(blocks.exchange_time, whole.exchange_time);
}

TEST(LinkSpeed, ReadsBitsAndBytes) {
  EXPECT_DOUBLE_EQ(read_link("400Gb/s,14us").bandwidth, 50e9);
  EXPECT_DOUBLE_EQ(read_link("400Gb/s,14us").latency, 14e-6);
  EXPECT_DOUBLE_EQ(read_link("2.5GB/s,300ns").bandwidth, 2.5e9);
  EXPECT_DOUBLE_EQ(read_link("2.5GB/s,300ns").latency, 3e-7);
  EXPECT_DOUBLE_EQ(read_link("100Mb/s,1ms").bandwidth, 12.5e6);
  EXPECT_DOUBLE_EQ(read_latency("0.05ms"), 5e-5);
  for (const char* wrong :
       {"", "400", "400Gb/s", "400Gb/s,", ",1us", "400Gb/s,14", "400gb/s,1us", "0GB/s,1us", "-1GB/s,1us", "nanGB/s,1us",
        "infGB/s,1us", "1GB/s,0us", "1GB/s,1us,1us", "1 GB/s,1us", "1e3GB/s,1us", "1GB/s,1h"}) {
    EXPECT_NE(link_complaint(wrong), "") << wrong;
  }
  EXPECT_EQ(latency_complaint("50us"), "");
  EXPECT_NE(latency_complaint("50"), "");
}

}  // namespace
}  // namespace quire
