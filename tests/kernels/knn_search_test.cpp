// Searches of an external memory equal, to the last bit, a sort of all scores, with any number of threads. Tests also
// what the kernels refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/knn.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

Tensor integers_of(const std::vector<int32_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

struct Found {
  Tensor index, score;
};

Found search(const Tensor& q, const ops::KnnMemory& memory, int64_t top_k) {
  const Shape shape{q.dim(0), q.dim(1), q.dim(2), top_k};
  const Found found{Tensor::empty(shape, DType::i32), Tensor::empty(shape, q.dtype())};
  ops::knn_search(found.index, found.score, q, memory, ops::KnnSearch::exact);
  return found;
}

// Scores as sums in order of features with fused multiply-adds, stably sorted.
template <typename T>
Found sorted(const Tensor& q, const ops::KnnMemory& memory, int64_t top_k) {
  const Shape shape{q.dim(0), q.dim(1), q.dim(2), top_k};
  const Found found{Tensor::empty(shape, DType::i32), Tensor::zeros(shape, q.dtype())};
  const int64_t heads = q.dim(2);
  const int64_t size = q.dim(3);
  const int64_t slots = memory.keys.dim(1);
  const int64_t kv_heads = memory.keys.dim(2);
  for (int64_t line = 0; line < q.dim(0) * q.dim(1) * heads; ++line) {
    const int64_t row = line / (q.dim(1) * heads);
    const int64_t length = memory.length.data<int32_t>()[row];
    std::vector<std::pair<T, int32_t>> scores;
    for (int64_t m = 0; m < length; ++m) {
      const int64_t slot = (memory.head.data<int32_t>()[row] - length + m + slots) % slots;
      const T* key =
          memory.keys.data<T>() + ((row * slots + slot) * kv_heads + line % heads / (heads / kv_heads)) * size;
      T sum = 0;
      for (int64_t d = 0; d < size; ++d) sum = std::fma(q.data<T>()[line * size + d], key[d], sum);
      scores.emplace_back(sum, static_cast<int32_t>(m));
    }
    std::stable_sort(scores.begin(), scores.end(), [](const auto& a, const auto& b) {
      return a.first > b.first || (!std::isnan(a.first) && std::isnan(b.first));
    });
    for (int64_t k = 0; k < top_k; ++k) {
      const bool there = k < static_cast<int64_t>(scores.size());
      found.index.data<int32_t>()[line * top_k + k] = there ? scores[static_cast<size_t>(k)].second : -1;
      if (there) found.score.data<T>()[line * top_k + k] = scores[static_cast<size_t>(k)].first;
    }
  }
  return found;
}

struct Form {
  const char* name;
  int64_t rows, queries, heads, kv_heads, size, slots, top_k;
  double spread;  // of keys about one of eight centres; 0: all are centres, so most scores are tied
};

TEST(KnnSearch, EqualsSortingBitForBit) {
  const Form forms[]{{"random", 2, 70, 4, 4, 64, 3000, 32, 4},     {"clustered", 1, 61, 2, 2, 32, 2500, 32, 1e-6},
                     {"tied", 1, 40, 2, 1, 24, 1500, 16, 0},       {"large_top_k", 1, 9, 1, 1, 16, 1201, 500, 1},
                     {"top_k_of_all", 2, 5, 2, 1, 7, 211, 211, 1}, {"top_1", 1, 33, 1, 1, 70, 999, 1, 1},
                     {"one_query", 3, 1, 2, 2, 64, 1000, 32, 1},   {"wide", 1, 6, 1, 1, 200, 513, 9, 1},
                     {"long_rows", 1, 300, 8, 2, 16, 700, 33, 1}};
  uint32_t seed = 7;
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    RandomTensors random(seed++);
    const Tensor q = random.normal({form.rows, form.queries, form.heads, form.size}, 1, 0, DType::f32);
    const Tensor centres = random.normal({8, form.size}, 1, 0, DType::f32);
    ops::KnnMemory memory;
    memory.keys = random.normal({form.rows, form.slots, form.kv_heads, form.size}, form.spread, 0, DType::f32);
    for (int64_t i = 0; i < memory.keys.numel(); ++i) {
      const int64_t vector = i / form.size;
      memory.keys.data<float>()[i] += centres.data<float>()[vector * vector % 8 * form.size + i % form.size];
    }
    std::vector<int32_t> head, length;
    for (int64_t r = 0; r < form.rows; ++r) {
      head.push_back(static_cast<int32_t>(random.below(form.slots)));
      length.push_back(static_cast<int32_t>(r == 0 ? form.slots : form.slots - random.below(form.slots / 2)));
    }
    memory.head = integers_of(head);
    memory.length = integers_of(length);
    const Found expected = sorted<float>(q, memory, form.top_k);
    const Found found = search(q, memory, form.top_k);
    EXPECT_TRUE(same_bits(found.index, expected.index));
    EXPECT_TRUE(same_bits(found.score, expected.score));
    ThreadPool pool(2);
    const ThreadPool::Use use(pool);
    EXPECT_TRUE(same_bits(search(q, memory, form.top_k).index, expected.index));
  }
}

// Searches that leave keys out have to be sure of it: numbers of very different sizes, none at all, no numbers.
TEST(KnnSearch, LosesNothingOnUnusualNumbers) {
  constexpr int64_t kSlots = 4100;
  constexpr int64_t kWidth = 36;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  using Change = std::function<void(float* keys, float* queries)>;
  const auto every = [](int64_t step, float factor) {
    return [=](float* keys, float*) {
      for (int64_t m = 0; m < kSlots; m += step) {
        for (int64_t d = 0; d < kWidth; ++d) keys[m * kWidth + d] *= factor;
      }
    };
  };
  const std::pair<const char*, Change> changes[]{
      {"long ones", every(97, 1000)},
      {"short ones", every(2, 1e-20F)},
      {"tiny", every(1, 1e-22F)},
      {"huge", every(1, 1e25F)},
      {"overflow", every(3, 1e38F)},
      {"one NaN", [&](float* keys, float*) { keys[3000 * kWidth + 7] = nan; }},
      {"infinities",
       [&](float* keys, float*) {
         keys[2000 * kWidth] = infinity;
         keys[2100 * kWidth + 35] = -infinity;
       }},
      {"queries",
       [&](float*, float* queries) {
         std::fill_n(queries, kWidth, 0.0F);
         queries[kWidth] = nan;
         queries[2 * kWidth + 35] = infinity;
         for (int64_t d = 0; d < kWidth; ++d) queries[3 * kWidth + d] *= 1e-21F;
         for (int64_t d = 0; d < kWidth; ++d) queries[4 * kWidth + d] *= 1e25F;
       }},
      {"all negative",
       [&](float* keys, float* queries) {
         for (int64_t i = 0; i < kSlots * kWidth; ++i) keys[i] = -std::abs(keys[i]);
         for (int64_t i = 0; i < 20 * kWidth; ++i) queries[i] = std::abs(queries[i]);
       }},
      {"rising",
       [&](float* keys, float* queries) {
         for (int64_t i = 0; i < kSlots * kWidth; ++i) {
           const int64_t slot = i / kWidth;
           keys[i] += static_cast<float>(slot) / 100;
         }
         for (int64_t i = 0; i < 20 * kWidth; ++i) queries[i] = std::abs(queries[i]);
       }},
      {"all alike",
       [&](float* keys, float*) {
         for (int64_t i = 0; i < kSlots * kWidth; ++i) keys[i] = static_cast<float>(i % kWidth);
       }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    RandomTensors random(11);
    const Tensor q = random.normal({1, 20, 1, kWidth}, 1, 0, DType::f32);
    ops::KnnMemory memory;
    memory.keys = random.normal({1, kSlots, 1, kWidth}, 1, 0, DType::f32);
    memory.head = integers_of({700});
    memory.length = integers_of({kSlots});
    change(memory.keys.data<float>(), q.data<float>());
    const Found expected = sorted<float>(q, memory, 16);
    const Found found = search(q, memory, 16);
    EXPECT_TRUE(same_bits(found.index, expected.index));
    for (int64_t i = 0; i < found.score.numel(); ++i) {
      const float a = found.score.data<float>()[i];
      const float b = expected.score.data<float>()[i];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i << ": " << a << " " << b;
    }
  }
}

// Keys converted block by block are the keys that were converted before.
TEST(KnnSearch, StoredTypesAreExactlyWhatTheyStandFor) {
  RandomTensors random(3);
  const int64_t slots = 700;
  const Tensor q = random.normal({1, 50, 2, 40}, 1, 0, DType::f32);
  const Tensor keys = random.normal({1, slots, 2, 40}, 1, 0, DType::f32);
  ops::KnnMemory memory;
  memory.head = integers_of({100});
  memory.length = integers_of({650});
  memory.keys = converted(keys, DType::bf16);
  ops::KnnMemory plain = memory;
  plain.keys = converted(memory.keys, DType::f32);
  EXPECT_TRUE(same_bits(search(q, memory, 20).score, sorted<float>(q, plain, 20).score));
  memory.key_scale = Tensor::empty({1, slots, 2}, DType::bf16);
  // A half of the last place, uniformly: of 127ths of the largest of 40, and of 8ths to 16ths of each number.
  for (const auto& [stored, max_error] : {std::pair{DType::i8, 0.01}, std::pair{DType::f8, 0.03}}) {
    memory.keys = Tensor::empty({1, slots, 2, 40}, stored);
    ops::quantize_vectors(memory.keys, memory.key_scale, keys);
    ops::dequantize_vectors(plain.keys, memory.keys, memory.key_scale);
    EXPECT_TRUE(same_bits(search(q, memory, 20).score, sorted<float>(q, plain, 20).score)) << name_of(stored);
    EXPECT_TRUE(same_bits(search(q, memory, 20).index, sorted<float>(q, plain, 20).index)) << name_of(stored);
    EXPECT_LE(relative_error(plain.keys, keys), max_error) << name_of(stored);
  }
}

// k = M is attention to everything that is remembered.
TEST(KnnAttention, ToAllEntriesIsFullAttention) {
  RandomTensors random(4);
  const int64_t slots = 37;
  const int64_t queries = 1;  // of a segment that it does not see
  ops::KnnMemory memory;
  memory.keys = random.normal({2, slots, 2, 8});
  memory.values = random.normal({2, slots, 2, 5});
  memory.head = integers_of({5, 30});
  memory.length = integers_of({37, 37});
  const Tensor q = random.normal({2, queries, 4, 8});
  const Tensor out = Tensor::empty({2, queries, 4, 5}, DType::f64);
  const Tensor lse = Tensor::empty({2, 4, queries}, DType::f64);
  ops::knn_attention(out, lse, {q, search(q, memory, slots).index, memory}, false);
  // The same ring as carried keys.
  ops::AttentionInputs full;
  full.q = q;
  full.k = Tensor::zeros({2, queries, 2, 8}, DType::f64);
  full.v = Tensor::zeros({2, queries, 2, 5}, DType::f64);
  full.cache_k = memory.keys;
  full.cache_v = memory.values;
  full.cache_head = memory.head;
  full.attend_self = false;
  full.first_visible = integers_of(std::vector<int32_t>(static_cast<size_t>(2 * queries), -37)).reshape({2, queries});
  const Tensor full_out = Tensor::empty_like(out);
  const Tensor full_lse = Tensor::empty_like(lse);
  ops::attention(full_out, full_lse, full);
  EXPECT_LE(relative_error(out, full_out), 1e-12);
  EXPECT_LE(relative_error(lse, full_lse), 1e-12);
}

TEST(KnnBadInput, IsRefused) {
  const auto zeros = [](const Shape& shape, DType dtype = DType::f32) { return Tensor::zeros(shape, dtype); };
  ops::KnnMemory memory;
  memory.keys = zeros({2, 4, 1, 3});
  memory.values = zeros({2, 4, 1, 2});
  memory.head = integers_of({0, 1});
  memory.length = integers_of({4, 1});
  const Tensor q = zeros({2, 5, 2, 3});
  const Tensor index = zeros({2, 5, 2, 6}, DType::i32);
  const Tensor score = zeros({2, 5, 2, 6});
  const auto run = [&](const ops::KnnMemory& m) { ops::knn_search(index, score, q, m, ops::KnnSearch::exact); };
  EXPECT_NO_THROW(run(memory));
  ops::KnnMemory wrong = memory;
  wrong.keys = zeros({2, 4, 1, 7});
  EXPECT_ERROR(run(wrong), ErrorKind::internal, "knn_search: keys [2, 4, 1, 7] for queries [2, 5, 2, 3]");
  wrong.keys = zeros({2, 4, 3, 3});
  EXPECT_ERROR(run(wrong), ErrorKind::internal, "knn_search: keys [2, 4, 3, 3]");
  wrong.keys = zeros({2, 4, 1, 3}, DType::f64);
  EXPECT_ERROR(run(wrong), ErrorKind::internal, "keys stored as f64 beside f32 queries");
  wrong.keys = zeros({2, 4, 1, 3}, DType::i8);
  EXPECT_ERROR(run(wrong), ErrorKind::internal, "i8 and f8 need one bf16 scale a vector");
  wrong.keys = zeros({2, 4, 1, 3}, DType::f8);
  EXPECT_ERROR(run(wrong), ErrorKind::internal, "keys stored as f8 with");
  wrong = memory;
  wrong.length = integers_of({5, 1});
  EXPECT_ERROR(run(wrong), ErrorKind::internal, "row 0 has 5 entries");
  EXPECT_ERROR(ops::knn_search(index, zeros({2, 5, 2, 5}), q, memory, ops::KnnSearch::exact), ErrorKind::internal,
               "knn_search: score f32 [2, 5, 2, 5] beside index [2, 5, 2, 6]");
  const Tensor out = zeros({2, 5, 2, 2});
  const Tensor lse = zeros({2, 2, 5});
  EXPECT_NO_THROW(ops::knn_attention(out, lse, {q, zeros({2, 5, 2, 6}, DType::i32), memory}, false));
  const Tensor far = zeros({2, 5, 2, 6}, DType::i32);
  far.data<int32_t>()[70] = 1;
  EXPECT_ERROR(ops::knn_attention(out, lse, {q, far, memory}, false), ErrorKind::internal,
               "knn_attention: entry 1 of 1");
  EXPECT_ERROR(ops::knn_attention(zeros({2, 5, 2, 3}), lse, {q, far, memory}, false), ErrorKind::internal,
               "knn_attention: out f32 [2, 5, 2, 3]");
  EXPECT_ERROR(ops::gate_heads(q, q, q, zeros({3}), {}, {}), ErrorKind::internal, "gate_heads: bias f32 [3]");
  EXPECT_ERROR(ops::gate_heads(q, q, q, zeros({2}), zeros({2, 2}), {}), ErrorKind::internal,
               "gate_heads: content f32 [2, 2]");
  EXPECT_ERROR(ops::quantize_vectors(zeros({2, 3}, DType::i8), zeros({2}), zeros({2, 3})), ErrorKind::internal,
               "quantize_vectors: i8 [2, 3] with f32 scales [2]");
}

}  // namespace
}  // namespace quire::test
