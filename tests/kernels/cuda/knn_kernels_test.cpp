// Tests which kernels of the external memory run, how much shared memory they request, and that neither pieces nor
// parts of a memory change a result.
#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include <limits>

#include "kernels/cuda_scratch.h"
#include "kernels/knn.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

struct Call {
  int64_t rows = 1, queries = 5, heads = 2, kv_heads = 1, size = 16, slots = 100, top_k = 4;
  DType type = DType::bf16, stored = DType::bf16;
  ops::KnnSearch search = ops::KnnSearch::exact;
};

struct Results {
  Tensor index, score;
};

class KnnKernels : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(missing_cuda_device(), ""); }

  Tensor normal(const Shape& shape, DType dtype) { return random_.normal(shape, 1, 0, dtype); }
  static Tensor integers(const std::vector<int32_t>& values, Device device) {
    return Tensor::from(values, {static_cast<int64_t>(values.size())}, device);
  }

  // On the host.
  ops::KnnMemory memory_of(const Call& call) {
    ops::KnnMemory memory;
    const Shape shape{call.rows, call.slots, call.kv_heads, call.size};
    if (ops::has_scale(call.stored)) {
      for (const auto& [stored, scale] :
           {std::pair{&memory.keys, &memory.key_scale}, std::pair{&memory.values, &memory.value_scale}}) {
        *stored = Tensor::empty(shape, call.stored);
        *scale = Tensor::empty({call.rows, call.slots, call.kv_heads}, DType::bf16);
        ops::quantize_vectors(*stored, *scale, normal(shape, DType::f32));
      }
    } else {
      memory.keys = normal(shape, call.stored);
      memory.values = normal(shape, call.stored);
    }
    std::vector<int32_t> head, length;
    for (int64_t row = 0; row < call.rows; ++row) {
      head.push_back(static_cast<int32_t>(call.slots / 3 + row));
      length.push_back(static_cast<int32_t>(row % 2 == 0 ? call.slots : call.slots / 2));
    }
    memory.head = integers(head, kCpu);
    memory.length = integers(length, kCpu);
    return memory;
  }
  static ops::KnnMemory moved(ops::KnnMemory memory) {
    for (Tensor* tensor :
         {&memory.keys, &memory.key_scale, &memory.values, &memory.value_scale, &memory.head, &memory.length}) {
      if (tensor->defined()) *tensor = on_device(*tensor, kCuda);
    }
    return memory;
  }

  static Results search(const Tensor& q, const ops::KnnMemory& memory, const Call& call) {
    const Shape shape{call.rows, call.queries, call.heads, call.top_k};
    const Results results{Tensor::empty(shape, DType::i32, kCuda), Tensor::empty(shape, wide_type(call.type), kCuda)};
    ops::knn_search(results.index, results.score, q, memory, call.search);
    return results;
  }
  Tensor queries(const Call& call) {
    return on_device(normal({call.rows, call.queries, call.heads, call.size}, call.type), kCuda);
  }

  bool takes_tensor_cores(const Call& call) {
    const int64_t before = shim::tensor_products();
    search(queries(call), moved(memory_of(call)), call);
    return shim::tensor_products() > before;
  }

  RandomTensors random_{31};
};

TEST_F(KnnKernels, TensorCoresSearchWhatSuitsThem) {
  EXPECT_TRUE(takes_tensor_cores({}));
  EXPECT_TRUE(takes_tensor_cores({.size = 128, .top_k = 200}));
  EXPECT_TRUE(takes_tensor_cores({.size = 8}));
  EXPECT_TRUE(takes_tensor_cores({.stored = DType::i8}));
  EXPECT_TRUE(takes_tensor_cores({.size = 48, .stored = DType::f8}));
  EXPECT_FALSE(takes_tensor_cores({.size = 12}));
  EXPECT_FALSE(takes_tensor_cores({.size = 136}));
  EXPECT_FALSE(takes_tensor_cores({.size = 24, .stored = DType::i8}));
  EXPECT_FALSE(takes_tensor_cores({.stored = DType::f32}));
  EXPECT_FALSE(takes_tensor_cores({.type = DType::f32, .stored = DType::bf16}));
  constexpr ops::KnnSearch kBucketed = ops::KnnSearch::bucketed;
  EXPECT_TRUE(takes_tensor_cores({.top_k = 8, .search = kBucketed}));
  EXPECT_TRUE(takes_tensor_cores({.size = 128, .top_k = 120, .search = kBucketed}));
  EXPECT_FALSE(takes_tensor_cores({.top_k = 7, .search = kBucketed}));
  EXPECT_FALSE(takes_tensor_cores({.top_k = 300, .search = kBucketed}));

  const Call call;
  const Tensor room = Tensor::zeros({call.rows * call.queries * call.heads * call.size + 1}, DType::bf16, kCuda);
  const Tensor off = room.slice(0, 1, room.numel()).reshape({call.rows, call.queries, call.heads, call.size});
  const int64_t before = shim::tensor_products();
  search(off, moved(memory_of(call)), call);
  EXPECT_EQ(shim::tensor_products(), before);
}

TEST_F(KnnKernels, NoKernelAsksForMoreSharedMemoryThanEveryDeviceHas) {
  shim::max_shared_bytes();
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    for (const int64_t top_k : {1, 32, 34, 53, 80, 81, 128, 129, 700}) {
      for (const ops::KnnSearch how : {ops::KnnSearch::exact, ops::KnnSearch::bucketed}) {
        for (const int64_t size : {128, 20}) {
          Call call{.queries = 70,
                    .heads = 1,
                    .size = size,
                    .slots = 90,
                    .top_k = top_k,
                    .type = type,
                    .stored = type,
                    .search = how};
          search(queries(call), moved(memory_of(call)), call);
          EXPECT_LE(shim::max_shared_bytes(), static_cast<size_t>(kMaxShared)) << name_of(type) << " " << top_k;
        }
      }
    }
  }
}

// Some entries more than once: attention counts each place.
TEST_F(KnnKernels, AttentionToManyEntriesTakesRounds) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t size : {16, 13}) {
      const Call call{
          .queries = 1, .heads = 1, .size = size, .slots = 600, .top_k = 4500, .type = type, .stored = type};
      const ops::KnnMemory memory = memory_of(call);
      const Tensor q = normal({1, 1, 1, size}, type);
      const Tensor dout = normal({1, 1, 1, size}, type);
      std::vector<int32_t> index;
      for (int64_t n = 0; n < call.top_k; ++n) {
        index.push_back(n % 5 == 0 ? -1 : static_cast<int32_t>(random_.below(call.slots)));
      }
      const Tensor chosen = Tensor::from(index, {1, 1, 1, call.top_k});
      const auto run = [&](DType as, Device device) {
        const auto to = [&](const Tensor& tensor) { return on_device(converted(tensor, as), device); };
        ops::KnnMemory there = device == kCpu ? memory : moved(memory);
        if (device == kCpu) {
          there.keys = to(memory.keys);
          there.values = to(memory.values);
        }
        const ops::KnnAttentionInputs in{to(q), on_device(chosen, device), there};
        const Tensor out = Tensor::zeros(q.shape(), as, device);
        const Tensor lse = Tensor::zeros({1, 1, 1}, wide_type(as), device);
        const Tensor dq = Tensor::zeros(q.shape(), as, device);
        ops::knn_attention(out, lse, in, false);
        ops::knn_attention_backward(dq, to(dout), out, lse, in, false);
        return std::vector<Tensor>{out, lse, dq};
      };
      shim::max_shared_bytes();
      const std::vector<Tensor> found = run(type, kCuda);
      EXPECT_LE(shim::max_shared_bytes(), static_cast<size_t>(kMaxShared));
      const std::vector<Tensor> expected = run(DType::f64, kCpu);
      // Results round to bf16 once, in two rounds twice.
      const double tolerance = type == DType::bf16 ? 2 * 0x1p-8 : 1e-4;
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_LE(relative_error(on_device(found[i], kCpu), expected[i]), tolerance)
            << name_of(type) << size << " " << i;
      }
    }
  }
}

TEST_F(KnnKernels, PiecesAndPartsDoNotChangeABit) {
  for (const DType stored : {DType::bf16, DType::i8, DType::f8}) {
    for (const ops::KnnSearch how : {ops::KnnSearch::exact, ops::KnnSearch::bucketed}) {
      for (const int64_t queries_of_row : {1, 40}) {
        const Call call{
            .rows = 2, .queries = queries_of_row, .slots = 1100, .top_k = 12, .stored = stored, .search = how};
        const Tensor q = queries(call);
        ops::KnnMemory memory = moved(memory_of(call));
        const Results whole = search(q, memory, call);
        memory.in_host_memory = true;
        const Results in_pieces = search(q, memory, call);
        EXPECT_TRUE(same_bits(in_pieces.index, whole.index));
        EXPECT_TRUE(same_bits(in_pieces.score, whole.score));
      }
    }
  }
}

// Vectors that are not readable hold NaN, which reaches nothing.
TEST_F(KnnKernels, WhatIsNotReadableDoesNotLeak) {
  for (const bool in_host_memory : {false, true}) {
    const Call call{.size = 40, .slots = 300, .top_k = 40};
    ops::KnnMemory memory = memory_of(call);
    memory.head = integers({290}, kCpu);
    memory.length = integers({33}, kCpu);
    for (int64_t slot = 0; slot < call.slots; ++slot) {
      if (slot >= 257 && slot < 290) continue;
      for (int64_t d = 0; d < call.size; ++d) {
        memory.keys.data<bfloat16>()[slot * call.size + d] = bfloat16(std::numeric_limits<float>::quiet_NaN());
      }
    }
    memory.in_host_memory = in_host_memory;
    const Results results = search(queries(call), moved(memory), call);
    const std::vector<int32_t> index = results.index.to_vector<int32_t>();
    const std::vector<float> score = results.score.to_vector<float>();
    for (size_t i = 0; i < index.size(); ++i) {
      EXPECT_EQ(index[i] >= 0, i % 40 < 33) << i;
      EXPECT_LT(index[i], 33);
      EXPECT_FALSE(std::isnan(score[i]));
    }
  }
}

// The operands of every product lie in different banks.
TEST_F(KnnKernels, SearchReadsWithoutBankConflicts) {
  const int64_t before = shim::bank_conflicts();
  for (const int64_t size : {64, 128}) {
    for (const DType stored : {DType::bf16, DType::f8}) {
      const Call call{.queries = 66, .size = size, .stored = stored};
      search(queries(call), moved(memory_of(call)), call);
    }
  }
  EXPECT_EQ(shim::bank_conflicts(), before);
}

}  // namespace
}  // namespace quire::test
