// Search of an external memory beside FAISS's flat index, in turn, on one thread; attention to what was found by
// gathering it and by dense products. Prints one JSON object.
//   bench_knn_search [ENTRIES...]     default: everything, search at 8192 65536
//   bench_knn_search index ENTRIES    the inverted file alone
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/bfloat16.h"
#include "core/random.h"
#include "core/tensor.h"
#include "kernels/backend.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/knn.h"
#include "kernels/knn_index.h"

#ifdef QUIRE_BENCH_FAISS
#include <faiss/IndexFlat.h>
#include <omp.h>
#endif

namespace {

using quire::DType;
using quire::Tensor;
namespace ops = quire::ops;

// As in a step of a model of width 256: 4 rows of 512 tokens, 4 heads.
constexpr int64_t kRows = 4;
constexpr int64_t kTokens = 512;
constexpr int64_t kHeads = 4;
constexpr int64_t kSize = 64;
constexpr int64_t kTopK = 32;

Tensor normal(const quire::Shape& shape, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  const quire::RandomKey key = quire::RandomKey::of(seed, 0);
  for (size_t i = 0; i < values.size(); i += 2) {
    const auto bits = quire::philox(key, 1, 2, 3, static_cast<uint32_t>(i));
    const double radius = std::sqrt(-2 * std::log((bits[0] + 1.0) * 0x1p-32));
    values[i] = static_cast<float>(radius * std::cos(6.283185307179586 * bits[1] * 0x1p-32));
    if (i + 1 < values.size())
      values[i + 1] = static_cast<float>(radius * std::sin(6.283185307179586 * bits[1] * 0x1p-32));
  }
  return Tensor::from(values, shape);
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Timed {
  std::string name;
  std::function<void()> work;
  std::vector<double> times = {};
};

// Every work once in each round, so that a slow spell of the machine meets all.
void run(std::vector<Timed>& all, int rounds) {
  for (Timed& one : all) one.work();
  for (int round = 0; round < rounds; ++round) {
    for (Timed& one : all) one.times.push_back(seconds(one.work));
  }
  for (Timed& one : all) std::sort(one.times.begin(), one.times.end());
}

void print(const std::vector<Timed>& all, double per) {
  bool first = true;
  for (const Timed& one : all) {
    std::printf("%s\n    \"%s\": {\"least\": %.3f, \"median\": %.3f}", first ? "" : ",", one.name.c_str(),
                one.times.front() * 1e6 / per, one.times[one.times.size() / 2] * 1e6 / per);
    first = false;
  }
}

struct Memories {
  ops::KnnMemory f32, bf16, i8;
};

Memories memories(int64_t entries) {
  Memories m;
  const quire::Shape shape{kRows, entries, kHeads, kSize};
  m.f32.keys = normal(shape, 1);
  m.f32.values = normal(shape, 2);
  m.f32.head = Tensor::from(std::vector<int32_t>(kRows, static_cast<int32_t>(entries / 3)), {kRows});
  m.f32.length = Tensor::from(std::vector<int32_t>(kRows, static_cast<int32_t>(entries)), {kRows});
  m.bf16 = m.i8 = m.f32;
  for (Tensor ops::KnnMemory::*which : {&ops::KnnMemory::keys, &ops::KnnMemory::values}) {
    const bool keys = which == &ops::KnnMemory::keys;
    m.bf16.*which = Tensor::empty(shape, DType::bf16);
    ops::convert(m.bf16.*which, m.f32.*which);
    Tensor& scale = keys ? m.i8.key_scale : m.i8.value_scale;
    m.i8.*which = Tensor::empty(shape, DType::i8);
    scale = Tensor::empty({kRows, entries, kHeads}, DType::bf16);
    ops::quantize_vectors(m.i8.*which, scale, m.f32.*which);
  }
  return m;
}

// Microseconds a query and head.
void bench_search(int64_t entries) {
  const Memories m = memories(entries);
  const Tensor q = normal({kRows, kTokens, kHeads, kSize}, 3);
  const Tensor index = Tensor::empty({kRows, kTokens, kHeads, kTopK}, DType::i32);
  const Tensor score = Tensor::empty({kRows, kTokens, kHeads, kTopK}, DType::f32);
  std::vector<Timed> all;
  const auto searched = [&](const char* name, const ops::KnnMemory& memory, ops::KnnSearch search) {
    all.push_back({name, [&, search] { ops::knn_search(index, score, q, memory, search); }});
  };
  searched("quire f32", m.f32, ops::KnnSearch::exact);
  searched("quire bf16", m.bf16, ops::KnnSearch::exact);
  searched("quire i8", m.i8, ops::KnnSearch::exact);
  searched("quire f32 bucketed", m.f32, ops::KnnSearch::bucketed);
#ifdef QUIRE_BENCH_FAISS
  omp_set_num_threads(1);
  // A row and head's keys and queries in an index of its own.
  const auto of_head = [](const Tensor& x, int64_t row, int64_t head) {
    std::vector<float> values(static_cast<size_t>(x.dim(1) * kSize));
    for (int64_t n = 0; n < x.dim(1); ++n) {
      std::copy_n(x.data<float>() + ((row * x.dim(1) + n) * kHeads + head) * kSize, kSize, values.data() + n * kSize);
    }
    return values;
  };
  std::vector<faiss::IndexFlatIP> indices;
  std::vector<std::vector<float>> queries;
  for (int64_t i = 0; i < kRows * kHeads; ++i) {
    indices.emplace_back(kSize);
    indices.back().add(entries, of_head(m.f32.keys, i / kHeads, i % kHeads).data());
    queries.push_back(of_head(q, i / kHeads, i % kHeads));
  }
  std::vector<float> distances(static_cast<size_t>(kTokens * kTopK));
  std::vector<int64_t> labels(distances.size());
  all.push_back({"FAISS flat f32", [&] {
                   for (size_t i = 0; i < indices.size(); ++i) {
                     indices[i].search(kTokens, queries[i].data(), kTopK, distances.data(), labels.data());
                   }
                 }});
#endif
  run(all, entries > 20000 ? 3 : 9);
#ifdef QUIRE_BENCH_FAISS
  // The same entries were found, as far as f32 tells them apart: a sum of 64 products near 1 is off by some 1e-5 at
  // most, also where the sum is near 0.
  ops::knn_search(index, score, q, m.f32, ops::KnnSearch::exact);
  int64_t differ = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t k = 0; k < kTopK; ++k) {
      const float own = score.data<float>()[(((kRows - 1) * kTokens + t) * kHeads + kHeads - 1) * kTopK + k];
      differ +=
          std::abs(own - distances[static_cast<size_t>(t * kTopK + k)]) > 1e-4F * std::max(1.0F, std::abs(own)) ? 1 : 0;
    }
  }
  if (differ != 0) {
    std::fprintf(stderr, "bench_knn_search: %ld scores differ from FAISS\n", static_cast<long>(differ));
    std::exit(1);
  }
#endif
  std::printf("{\"entries\": %ld, \"unit\": \"us a query\", \"search\": {", static_cast<long>(entries));
  print(all, static_cast<double>(kRows * kTokens * kHeads));
  std::printf("}");
}

// Microseconds a query and head of attention to retrieved entries: gathered, forward and backward, and by dense
// products over all entries (scores, a softmax that keeps the chosen ones, weighted sum), which read fewer bytes when
// there are fewer entries than queries times k.
void bench_attention(int64_t entries) {
  const Memories m = memories(entries);
  const Tensor q = normal({kRows, kTokens, kHeads, kSize}, 3);
  ops::KnnAttentionInputs in;
  in.q = q;
  in.memory = m.f32;
  in.index = Tensor::empty({kRows, kTokens, kHeads, kTopK}, DType::i32);
  const Tensor score = Tensor::empty({kRows, kTokens, kHeads, kTopK}, DType::f32);
  ops::knn_search(in.index, score, q, m.f32, ops::KnnSearch::exact);
  const Tensor out = Tensor::empty(q.shape(), DType::f32);
  const Tensor dq = Tensor::empty(q.shape(), DType::f32);
  const Tensor lse = Tensor::empty({kRows, kHeads, kTokens}, DType::f32);
  std::vector<Timed> all;
  ops::KnnAttentionInputs bf16 = in;
  ops::KnnAttentionInputs i8 = in;
  bf16.memory = m.bf16;
  i8.memory = m.i8;
  all.push_back({"gathered f32", [&] { ops::knn_attention(out, lse, in, false); }});
  all.push_back({"gathered bf16", [&] { ops::knn_attention(out, lse, bf16, false); }});
  all.push_back({"gathered i8", [&] { ops::knn_attention(out, lse, i8, false); }});
  all.push_back({"gathered f32, backward", [&] { ops::knn_attention_backward(dq, q, out, lse, in, false); }});
  // Only the two products of the dense form, of one head: what it takes at the least.
  const Tensor queries = normal({kTokens, kSize}, 3);
  const Tensor keys = normal({entries, kSize}, 1);
  const Tensor scores = Tensor::empty({kTokens, entries}, DType::f32);
  const Tensor sums = Tensor::empty({kTokens, kSize}, DType::f32);
  all.push_back({"dense, its two products alone", [&] {
                   for (int64_t i = 0; i < kRows * kHeads; ++i) {
                     ops::gemm(scores, queries, keys, {.transpose_b = true});
                     ops::gemm(sums, scores, keys, {});
                   }
                 }});
  run(all, 5);
  std::printf("{\"entries\": %ld, \"unit\": \"us a query\", \"attention\": {", static_cast<long>(entries));
  print(all, static_cast<double>(kRows * kTokens * kHeads));
  std::printf("}");
}

// The inverted file beside the exact search: one row and head, keys about 4096 centres (a normal cloud has no groups to
// find, and text has some).
void bench_index(int64_t entries) {
  const quire::Shape shape{1, entries, 1, kSize};
  ops::KnnMemory memory;
  memory.keys = normal(shape, 1);
  const Tensor centres = normal({4096, kSize}, 4);
  const Tensor q = normal({1, kTokens, 1, kSize}, 3);
  for (int64_t i = 0; i < entries * kSize; ++i) {
    float& x = memory.keys.data<float>()[i];
    x = x * 0.5F + centres.data<float>()[i / kSize * 2654435761 % 4096 * kSize + i % kSize];
  }
  for (int64_t i = 0; i < kTokens * kSize; ++i) {
    float& x = q.data<float>()[i];
    x = x * 0.5F + centres.data<float>()[i / kSize * 7 % 4096 * kSize + i % kSize];
  }
  memory.head = Tensor::from(std::vector<int32_t>{0}, {1});
  memory.length = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(entries)}, {1});
  const quire::ReadEntries read = quire::read_entries(memory, 0, 0, entries);
  const auto lists = static_cast<int64_t>(std::sqrt(static_cast<double>(entries)));
  quire::KnnIndex index({kSize, entries, lists, entries / 4});
  const double built = seconds([&] { index.update(entries, read); });
  const Tensor exact = Tensor::empty({1, kTokens, 1, kTopK}, DType::i32);
  const Tensor found = Tensor::empty({1, kTokens, 1, kTopK}, DType::i32);
  const Tensor score = Tensor::empty({1, kTokens, 1, kTopK}, DType::f32);
  std::vector<Timed> all;
  all.push_back({"exact", [&] { ops::knn_search(exact, score, q, memory, ops::KnnSearch::exact); }});
  std::vector<double> recalls;
  for (const int64_t probes : {2, 8, 32}) {
    const auto search = [&, probes] {
      index.search(found.data<int32_t>(), score.data<float>(), q.data<float>(), kTokens, kTopK, probes, read);
    };
    if (recalls.empty()) all[0].work();
    search();
    recalls.push_back(quire::recall(found.data<int32_t>(), exact.data<int32_t>(), kTokens, kTopK));
    char name[64];
    std::snprintf(name, sizeof(name), "%ld of %ld lists, recall %.3f", static_cast<long>(probes),
                  static_cast<long>(lists), recalls.back());
    all.push_back({name, search});
  }
  run(all, 5);
  std::printf("{\"entries\": %ld, \"unit\": \"us a query\", \"learned in seconds\": %.2f, \"index\": {",
              static_cast<long>(entries), built);
  print(all, static_cast<double>(kTokens));
  std::printf("}");
}

}  // namespace

int main(int argc, char** argv) {
  quire::load_backends();
  if (argc == 3 && std::string(argv[1]) == "index") {
    std::printf("[");
    bench_index(std::atol(argv[2]));
    std::printf("}]\n");
    return 0;
  }
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atol(argv[i]));
  const bool chosen = !sizes.empty();
  if (!chosen) sizes = {8192, 65536};
  std::printf("[");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) std::printf(",\n");
    bench_search(sizes[i]);
    std::printf("}");
  }
  if (!chosen) {
    for (const int64_t entries : {64, 256, 1024, 8192, 65536}) {
      std::printf(",\n");
      bench_attention(entries);
      std::printf("}");
    }
    if (quire::load_faiss().found) {
      for (const int64_t entries : {65536, 262144}) {
        std::printf(",\n");
        bench_index(entries);
        std::printf("}");
      }
    }
  }
  std::printf("]\n");
  return 0;
}
