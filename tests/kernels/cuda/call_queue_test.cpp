// Calls that are collected and repeated as graphs (kernels/cuda/call_queue.h), on the host.
#include "kernels/cuda/call_queue.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cuda/runtime.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_shim/cuda_graphs.h"
#include "tests/support/expect_error.h"
#include "trainers/step/graphs.h"

namespace quire::test {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};

Tensor values(const std::vector<float>& numbers) {
  return Tensor::from(numbers, {static_cast<int64_t>(numbers.size())}, kCuda);
}

class CudaGraphs : public ::testing::Test {
 protected:
  ~CudaGraphs() override {
    device.use_graphs(false);
    device.synchronize();
    shim::refuse_graphs(false);
  }

  // What has been counted since the last time.
  DeviceBackend::CallCounts counted() {
    const DeviceBackend::CallCounts now = device.call_counts();
    const DeviceBackend::CallCounts before = std::exchange(before_, now);
    return {now.calls - before.calls, now.in_graphs - before.in_graphs, now.changed - before.changed,
            now.spans - before.spans, now.graphs};
  }

  DeviceBackend& device = device_backend(DeviceKind::cuda);
  cuda::CallQueue& queue = cuda::call_queue();

 private:
  DeviceBackend::CallCounts before_ = device.call_counts();
};

// y = 1 + 2 + ... in four kernels, and a copy of it.
void add_four(const Tensor& to, const Tensor& y, const Tensor& x) {
  ops::add(y, x, x, 1, 1);
  for (int i = 0; i < 3; ++i) ops::add(y, y, x, 1, 1);
  to.copy_from(y);
}

TEST_F(CudaGraphs, WhatComesASecondTimeIsRecordedAndThenLaunched) {
  const Tensor x = values({1, 2, 3}), y = values({0, 0, 0}), to = values({0, 0, 0});
  device.use_graphs(true);
  for (int time = 1; time <= 4; ++time) {
    add_four(to, y, x);
    device.submit();
    const DeviceBackend::CallCounts counts = counted();
    EXPECT_EQ(counts.calls, 5);
    EXPECT_EQ(counts.in_graphs, time == 1 ? 0 : 5) << time;
    if (cuda::kClearsPadding) {
      EXPECT_EQ(counts.changed, 0) << time;
    }
    EXPECT_EQ(to.to_vector<float>(), (std::vector<float>{5, 10, 15}));
    counted();
  }
}

TEST_F(CudaGraphs, ParametersOfKernelsAreSet) {
  const Tensor y = values({0, 0, 0}), to = values({0, 0, 0});
  device.use_graphs(true);
  for (int time = 1; time <= 5; ++time) {
    const auto first = static_cast<float>(time);
    const Tensor x = values({first, 2, 3});  // a kernel, which has the numbers as parameters
    add_four(to, y, x);
    device.submit();
    const DeviceBackend::CallCounts counts = counted();
    EXPECT_EQ(counts.in_graphs, time == 1 ? 0 : 6) << time;
    if (cuda::kClearsPadding) {
      EXPECT_EQ(counts.changed, time <= 2 ? 0 : 1) << time;
    }
    EXPECT_EQ(to.to_vector<float>(), (std::vector<float>{5 * first, 10, 15}));
    counted();
  }
}

TEST_F(CudaGraphs, SizesOfGridsAreSet) {
  device.use_graphs(true);
  for (const int64_t count : {int64_t{3000}, int64_t{3000}, int64_t{7}, int64_t{9000}, int64_t{3000}}) {
    const Tensor x = Tensor::zeros({count}, DType::f32, kCuda), y = Tensor::zeros({count}, DType::f32, kCuda);
    device.submit();
    counted();
    for (int i = 0; i < 4; ++i) ops::add(y, y, x, 1, 1);
    const Tensor one = values({1});
    ops::add(y.slice(0, count - 1, count), one, one, 1, 1);
    EXPECT_EQ(y.to_vector<float>().back(), 2) << count;
    EXPECT_EQ(y.to_vector<float>().front(), 0) << count;
  }
  EXPECT_GT(device.call_counts().in_graphs, 0);
}

// They are graphs of their own.
TEST_F(CudaGraphs, OtherOperandsOfProductsAreOtherGraphs) {
  const Tensor a = values({1, 2, 3, 4}).reshape({2, 2}), b = values({5, 6, 7, 8}).reshape({2, 2});
  const std::vector<Tensor> results{Tensor::zeros({2, 2}, DType::f32, kCuda), Tensor::zeros({2, 2}, DType::f32, kCuda)};
  // From now on the library is known to take them.
  ops::gemm(results[0], a, b, {});
  ops::gemm(results[0], b, a, {.accumulate = true});
  device.use_graphs(true);
  const int64_t graphs = device.call_counts().graphs;
  for (int time = 0; time < 8; ++time) {
    const Tensor& c = results[static_cast<size_t>(time % 2)];
    c.zero();
    ops::gemm(c, a, b, {});
    ops::gemm(c, b, a, {.accumulate = true});
    ops::add(c, c, a, 1, 1);
    EXPECT_EQ(c.to_vector<float>(), (std::vector<float>{19 + 23 + 1, 22 + 34 + 2, 43 + 31 + 3, 50 + 46 + 4})) << time;
  }
  EXPECT_EQ(device.call_counts().graphs, graphs + 2);
  EXPECT_EQ(counted().in_graphs, 6 * 4);
}

TEST_F(CudaGraphs, LongSpansAreCut) {
  const Tensor x = values({1}), y = values({0});
  device.use_graphs(true);
  constexpr int kCalls = 3 * static_cast<int>(cuda::CallQueue::kMostCalls) + 50;
  for (int time = 1; time <= 3; ++time) {
    for (int i = 0; i < kCalls; ++i) ops::add(y, y, x, 1, 1);
    device.submit();
    const DeviceBackend::CallCounts counts = counted();
    EXPECT_EQ(counts.spans, 4);
    EXPECT_EQ(counts.calls, kCalls);
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>{static_cast<float>(time * kCalls)});
    counted();
  }
}

// Each of 300 spans has other calls: a bit of its number says which of two is made.
TEST_F(CudaGraphs, AreKeptUpToANumber) {
  const int living = shim::living_graphs();
  const Tensor one = values({1}), sum = values({0});
  device.use_graphs(true);
  for (int time = 0; time < 12; ++time) {
    for (int span = 0; span < 300; ++span) {
      float wanted = 0;
      for (int bit = 0; bit < 9; ++bit) {
        const bool adds = (span >> bit & 1) != 0;
        adds ? ops::add(sum, sum, one, 1, 1) : sum.zero();
        wanted = adds ? wanted + 1 : 0;
      }
      if (span % 50 == 0) {
        EXPECT_EQ(sum.to_vector<float>(), std::vector<float>{wanted}) << span;
      }
      device.submit();
    }
    EXPECT_LE(device.call_counts().graphs, 256);
  }
  EXPECT_LE(shim::living_graphs() - living, 2 * 256);
  EXPECT_GT(counted().in_graphs, 0);
  device.use_graphs(false);
  EXPECT_EQ(shim::living_graphs(), living);
}

TEST_F(CudaGraphs, CopiesAndZerosKeepToTheirPlaces) {
  device.use_graphs(true);
  for (const int64_t count : {1, 15, 16, 17, 1000, 70001}) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    std::iota(bytes.begin(), bytes.end(), uint8_t{3});
    const Tensor from = Tensor::from(bytes, {count}, kCuda);
    const Tensor room = Tensor::from(std::vector<uint8_t>(static_cast<size_t>(count + 40), 9), {count + 40}, kCuda);
    for (const int64_t at : {0, 5, 16}) {
      std::vector<uint8_t> wanted(static_cast<size_t>(count + 40), 9);
      const Tensor place = room.slice(0, at, at + count);
      place.copy_from(from);
      std::copy(bytes.begin(), bytes.end(), wanted.begin() + at);
      EXPECT_EQ(room.to_vector<uint8_t>(), wanted) << count << " at " << at;
      place.zero();
      std::fill_n(wanted.begin() + at, count, uint8_t{0});
      EXPECT_EQ(room.to_vector<uint8_t>(), wanted) << count << " at " << at;
      for (uint8_t& byte : wanted) byte = 9;
      room.upload(wanted.data(), count + 40);
    }
  }
}

TEST_F(CudaGraphs, WithoutMemoryForAGraphTheCallsFailOnce) {
  const Tensor x = values({1, 2}), y = values({0, 0}), to = values({0, 0});
  device.use_graphs(true);
  const auto add_twice = [&] {
    add_four(to, y, x);
    add_four(to, y, x);
  };
  add_twice();
  device.submit();
  shim::refuse_graphs(true);
  const int living = shim::living_graphs();
  add_twice();
  try {
    device.submit();
    FAIL() << "a graph without memory";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("while 10 calls were recorded as a graph; run.graphs: false does without"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(shim::living_graphs(), living);
  EXPECT_FALSE(queue.has_calls());
  EXPECT_EQ(to.to_vector<float>(), (std::vector<float>{5, 10}));
}

TEST_F(CudaGraphs, MemoryGoesBackAfterTheCallsThatUseIt) {
  device.use_graphs(true);
  Tensor sum = Tensor::zeros({5000}, DType::f32, kCuda);
  {
    const Tensor one = Tensor::from(std::vector<float>(5000, 1), {5000}, kCuda);
    for (int i = 0; i < 3; ++i) ops::add(sum, sum, one, 1, 1);
  }
  device.allocator().trim();
  EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(5000, 3));
}

TEST_F(CudaGraphs, SmallUploadsKeepEveryByte) {
  for (const bool graphs : {false, true}) {
    device.use_graphs(graphs);
    for (const int64_t count : {1, 3, 4, 127, 128, 129, 1023, 1024, 1025}) {
      std::vector<uint8_t> bytes(static_cast<size_t>(count));
      std::iota(bytes.begin(), bytes.end(), uint8_t{7});
      const Tensor uploaded = Tensor::from(bytes, {count}, kCuda);
      EXPECT_EQ(uploaded.to_vector<uint8_t>(), bytes);
      // Anywhere in memory, and nothing beside it.
      const Tensor room = Tensor::zeros({count + 8}, DType::u8, kCuda);
      for (const int64_t at : {0, 1, 4}) {
        room.zero();
        room.slice(0, at, at + count).upload(bytes.data(), count);
        std::vector<uint8_t> wanted(static_cast<size_t>(count + 8));
        std::copy(bytes.begin(), bytes.end(), wanted.begin() + at);
        EXPECT_EQ(room.to_vector<uint8_t>(), wanted) << count << " at " << at;
      }
    }
  }
}

TEST_F(CudaGraphs, ARunTurnsThemOnAndOff) {
  {
    Graphs graphs(device, true);
    EXPECT_TRUE(queue.collects());
    EXPECT_TRUE(graphs.lines().empty());
    const Tensor x = values({1}), y = values({0});
    for (int i = 0; i < 2; ++i) add_four(y, y, x);
    device.submit();
    ASSERT_EQ(graphs.report(2).size(), 1U);
  }
  EXPECT_FALSE(queue.collects());
  Graphs none(device, false);
  EXPECT_FALSE(queue.collects());
  EXPECT_TRUE(none.lines().empty() && none.report(1).empty());
  Graphs without(device_backend(DeviceKind::cpu), true);
  EXPECT_EQ(without.lines(), std::vector<std::string>{"graphs: the run computes on no GPU, so that there are none"});
}

}  // namespace
}  // namespace quire::test
