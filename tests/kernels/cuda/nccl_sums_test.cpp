// Tests what NCCL's collectives compute, and what their operations wait for.
#include <gtest/gtest.h>

#include <future>

#include "tests/kernels/cuda/nccl_ranks.h"

namespace quire::test {
namespace {

template <typename T>
std::vector<T> values_of(int rank, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(1) / static_cast<T>(1 + rank + 3 * (i % 97)));
  return values;
}

template <typename T>
std::vector<T> sums_of(int ranks, int64_t count) {
  std::vector<T> sums(static_cast<size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> values = values_of<T>(rank, count);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  return sums;
}

template <typename T>
std::vector<T> part(const std::vector<T>& values, const PartBounds& bounds, int rank) {
  const auto at = static_cast<size_t>(rank);
  return {values.begin() + bounds[at], values.begin() + bounds[at + 1]};
}

template <typename T>
void check_all(int size, int64_t count, const PartBounds& bounds) {
  on_nccl_ranks(size, [&](NcclRank& rank) {
    const int me = rank.ranks.rank();
    const std::vector<T> mine = values_of<T>(me, count);
    const std::vector<T> sums = sums_of<T>(size, count);
    const Tensor reduced = on_gpu(mine);
    const Tensor scattered = on_gpu(mine);
    const Tensor gathered = on_gpu(mine);
    rank.collectives.all_reduce(reduced);
    rank.collectives.reduce_scatter(scattered, bounds);
    rank.collectives.all_gather(gathered, bounds);
    rank.collectives.wait();
    rank.compute.synchronize();
    EXPECT_EQ(rank.collectives.finished(), 3);
    EXPECT_EQ(reduced.to_vector<T>(), sums);
    EXPECT_EQ(part(scattered.to_vector<T>(), bounds, me), part(sums, bounds, me));
    for (int other = 0; other < size; ++other) {
      EXPECT_EQ(part(gathered.to_vector<T>(), bounds, other), part(values_of<T>(other, count), bounds, other));
    }
  });
}

// More than one piece of the library in NCCL's place, and parts of equal size, of others, and empty ones.
TEST(NcclSums, AreThoseOfRanksInOrder) {
  check_all<float>(2, 10006, {0, 5003, 10006});
  check_all<double>(2, 10007, {0, 4096, 10007});
  check_all<float>(3, 4111, {0, 64, 64, 4111});
  check_all<double>(4, 40, {0, 10, 20, 30, 40});
  check_all<float>(1, 17, {0, 17});
}

TEST(NcclSums, OfNothingAreOperationsToo) {
  on_nccl_ranks(2, [](NcclRank& rank) {
    rank.collectives.all_reduce(on_gpu(std::vector<float>{}));
    rank.collectives.reduce_scatter(on_gpu(std::vector<float>{1, 2}), {0, 0, 0});
    rank.collectives.wait();
    rank.compute.synchronize();
    EXPECT_EQ(rank.collectives.finished(), 2);
  });
}

TEST(NcclSums, BeginWhenWhatWasComputedBeforeIsDone) {
  on_nccl_ranks(2, [](NcclRank& rank) {
    const Tensor values = on_gpu(std::vector<float>{-1, -1});
    std::promise<void> gate;
    std::shared_future<void> open = gate.get_future().share();
    rank.compute.run([=] {
      open.wait();
      std::fill_n(values.data<float>(), 2, 2.0F);
    });
    rank.collectives.all_reduce(values);
    rank.collectives.wait();  // returns, though nothing has begun
    EXPECT_EQ(rank.collectives.finished(), 0);
    gate.set_value();
    rank.compute.synchronize();
    EXPECT_EQ(values.to_vector<float>(), std::vector<float>({4, 4}));
  });
}

// The host computes between begin and wait() while the operation runs; after wait() it finds the sums.
TEST(NcclSums, AreThereForWhatIsComputedAfterWait) {
  on_nccl_ranks(2, [](NcclRank& rank) {
    const Tensor values = on_gpu(std::vector<double>{1});
    std::vector<double> seen;
    if (rank.ranks.rank() == 0) rank.collectives.all_reduce(values);
    rank.compute.run([&] { seen.push_back(values.data<double>()[0]); });
    rank.compute.synchronize();
    rank.ranks.barrier();
    if (rank.ranks.rank() == 1) rank.collectives.all_reduce(values);
    rank.collectives.wait();
    rank.compute.run([&] { seen.push_back(values.data<double>()[0]); });
    rank.compute.synchronize();
    EXPECT_EQ(seen, std::vector<double>({1, 2}));
  });
}

TEST(NcclSums, AreCountedWhenTheyAreDone) {
  const Injection injection("slow=5");
  on_nccl_ranks(2, [](NcclRank& rank) {
    std::vector<Tensor> values;
    for (int i = 0; i < 3; ++i) {
      values.push_back(on_gpu(std::vector<float>{1, 2, 3}));
      rank.collectives.reduce_scatter(values.back(), {0, 1, 3});
    }
    while (rank.collectives.finished() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const size_t at = rank.ranks.rank() == 0 ? 0 : 1;
    for (const Tensor& one : values) EXPECT_EQ(one.to_vector<float>()[at], at == 0 ? 2.0F : 4.0F);
  });
}

TEST(NcclSums, AreOfTensorsOnAGpuInWholeRows) {
  on_nccl_ranks(2, [](NcclRank& rank) {
    EXPECT_THROW(rank.collectives.all_reduce(Tensor::zeros({3}, DType::f32)), Error);
    EXPECT_THROW(rank.collectives.all_reduce(on_gpu(std::vector<int32_t>{1})), Error);
    const Tensor square = on_gpu(std::vector<float>(4)).reshape({2, 2});
    EXPECT_THROW(rank.collectives.all_reduce(square.transpose(0, 1)), Error);
    const Tensor values = on_gpu(std::vector<float>(4));
    EXPECT_THROW(rank.collectives.all_gather(values, {0, 4}), Error);
    EXPECT_THROW(rank.collectives.all_gather(values, {0, 3, 5}), Error);
    EXPECT_THROW(rank.collectives.all_gather(values, {0, 3, 2}), Error);
    EXPECT_EQ(rank.collectives.finished(), 0);
  });
}

}  // namespace
}  // namespace quire::test
