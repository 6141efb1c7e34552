// External memories: search and attention to what it found.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "kernels/knn.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Keys { random, equal, duplicated, clustered, rising, falling, with_nan };

struct KnnForm {
  std::string name = {};
  int64_t rows = 2, queries = 5, heads = 2, kv_heads = 2, size = 5, value_size = 3, slots = 11, top_k = 3;
  std::vector<int32_t> head{4, 9}, length{11, 6};
  // f64 stands for the type of the queries.
  DType stored = DType::f64;
  Keys keys = Keys::random;
  bool in_host_memory = false;  // as the kernels are told
};

KnnForm of_sizes(const std::string& name, const std::array<int64_t, 8>& sizes, KnnForm form = {}) {
  form.name = name;
  std::tie(form.rows, form.queries, form.heads, form.kv_heads, form.size, form.value_size, form.slots, form.top_k) =
      std::tuple_cat(sizes);
  return form;
}

Tensor integers_of(const std::vector<int32_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

// Halves of small integers: their products and sums are exact in every type.
Tensor halves(RandomTensors& random, const Shape& shape) {
  const Tensor x = recast(random.integers(shape, -4, 5), DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) values(x)[i] /= 2;
  return x;
}

// keys, key scales, values, value scales, head, length.
constexpr size_t kMemoryTensors = 6;

Tensors memory_tensors(const KnnForm& form, RandomTensors& random, bool exact) {
  const Shape scales{form.rows, form.slots, form.kv_heads};
  Tensors memory;
  for (const int64_t size : {form.size, form.value_size}) {
    const Shape shape{form.rows, form.slots, form.kv_heads, size};
    if (ops::has_scale(form.stored)) {
      memory.push_back(form.stored == DType::i8 ? recast(random.integers(shape, -127, 128), DType::i8)
                                                : recast(random.normal(shape, 100), DType::f8));
      memory.push_back(converted(random.normal(scales, 0.01), DType::bf16));
      if (exact) {
        memory[memory.size() - 2] = recast(halves(random, shape), form.stored);
        memory.back() = recast(halves(random, scales), DType::bf16);
      }
      continue;
    }
    Tensor x = exact ? halves(random, shape) : converted(random.normal(shape), DType::bf16);
    memory.push_back(converted(x, DType::f64));
    memory.push_back({});
  }
  const Tensor keys = memory[0];
  for (int64_t i = 0; i < keys.numel() && !ops::has_scale(form.stored); ++i) {
    double& x = values(keys)[i];
    const int64_t entry = i / (form.size * form.kv_heads) % form.slots;
    switch (form.keys) {
      case Keys::random:
        break;
      case Keys::equal:
        x = 0.5;
        break;
      case Keys::duplicated:
        x = values(keys)[i % (form.size * form.kv_heads) + entry % 3 * form.size * form.kv_heads];
        break;
      case Keys::clustered:  // nearly all alike
        x = i % 7 == 0 ? x : 1;
        break;
      case Keys::rising:
        x = static_cast<double>(entry) / 8;
        break;
      case Keys::falling:
        x = -static_cast<double>(entry) / 8;
        break;
      case Keys::with_nan:
        if (i % (3 * form.size + 1) == 0) x = std::nan("");
        break;
    }
  }
  memory.push_back(integers_of(form.head));
  memory.push_back(integers_of(form.length));
  return memory;
}

ops::KnnMemory assembled(const KnnForm& form, const Tensors& in, size_t first) {
  const auto stored = [&](const Tensor& x) {
    return form.stored == DType::f64 || ops::has_scale(form.stored) ? x : recast(x, form.stored);
  };
  return {stored(in[first]),     recast(in[first + 1], DType::bf16),
          stored(in[first + 2]), recast(in[first + 3], DType::bf16),
          in[first + 4],         in[first + 5],
          form.in_host_memory};
}

// Holds the values that kernels must read: entry m of a row and head.
class Entries {
 public:
  Entries(const Tensors& in, size_t first, bool of_values)
      : stored_(recast(in[first + (of_values ? 2 : 0)], DType::f64)),
        scale_(recast(in[first + (of_values ? 3 : 1)], DType::f64)),
        head_(in[first + 4]),
        length_(in[first + 5]) {}

  int64_t length(int64_t row) const { return length_.data<int32_t>()[row]; }
  double at(int64_t row, int64_t entry, int64_t kv_head, int64_t d) const {
    const int64_t slots = stored_.dim(1);
    const int64_t slot = (head_.data<int32_t>()[row] - length(row) + entry + slots) % slots;
    const int64_t vector = (row * slots + slot) * stored_.dim(2) + kv_head;
    return values(stored_)[vector * stored_.dim(3) + d] * (scale_.defined() ? values(scale_)[vector] : 1);
  }

 private:
  Tensor stored_, scale_, head_, length_;
};

double& element(const Tensor& x, int64_t row, int64_t query, int64_t head, int64_t i) {
  return values(x)[((row * x.dim(1) + query) * x.dim(2) + head) * x.dim(3) + i];
}

double product(const KnnForm& form, const Entries& keys, const Tensor& q, int64_t row, int64_t query, int64_t head,
               int64_t entry) {
  double sum = 0;
  for (int64_t d = 0; d < form.size; ++d) {
    sum += element(q, row, query, head, d) * keys.at(row, entry, head / (form.heads / form.kv_heads), d);
  }
  return sum;
}

// Calls body(row, query, head).
template <typename Body>
void for_queries(const KnnForm& form, Body&& body) {
  for (int64_t row = 0; row < form.rows; ++row) {
    for (int64_t query = 0; query < form.queries; ++query) {
      for (int64_t head = 0; head < form.heads; ++head) body(row, query, head);
    }
  }
}

bool comes_before(double a, double b) {
  return a > b || (!std::isnan(a) && std::isnan(b));
}

void add_search(std::vector<OpCase>& cases, RandomTensors& random, const KnnForm& form, ops::KnnSearch search) {
  Tensors inputs{halves(random, {form.rows, form.queries, form.heads, form.size})};
  for (const Tensor& tensor : memory_tensors(form, random, true)) inputs.push_back(tensor);
  const Shape shape{form.rows, form.queries, form.heads, form.top_k};
  const bool exact = search == ops::KnnSearch::exact;
  add_operation(
      cases, "knn_search", exact ? form.name : "bucketed_" + form.name, inputs, 0,
      [=](const Tensors& in) {
        const Tensor index = recast(wide_beside(in[0], shape), DType::i32);
        const Tensor score = wide_beside(in[0], shape);
        ops::knn_search(index, score, in[0], assembled(form, in, 1), search);
        return Tensors{recast(index, DType::f64), shown(score)};
      },
      [=](const Tensors& in) {
        const Entries keys(in, 1, false);
        const Tensor index = Tensor::zeros(shape, DType::f64);
        const Tensor score = Tensor::zeros(shape, DType::f64);
        for_queries(form, [&](int64_t row, int64_t query, int64_t head) {
          std::vector<std::pair<int64_t, double>> order;
          for (int64_t m = 0; m < keys.length(row); ++m) {
            order.emplace_back(m, product(form, keys, in[0], row, query, head, m));
          }
          if (exact) {
            std::stable_sort(order.begin(), order.end(),
                             [](const auto& a, const auto& b) { return comes_before(a.second, b.second); });
          }
          for (int64_t k = 0; k < form.top_k; ++k) {
            std::pair<int64_t, double> best{-1, 0};
            if (exact) {
              if (k < static_cast<int64_t>(order.size())) best = order[static_cast<size_t>(k)];
            } else {
              for (int64_t m = k; m < keys.length(row); m += form.top_k) {
                const auto& other = order[static_cast<size_t>(m)];
                if (best.first < 0 || comes_before(other.second, best.second)) best = other;
              }
            }
            element(index, row, query, head, k) = static_cast<double>(best.first);
            element(score, row, query, head, k) = best.second;
          }
        });
        return Tensors{index, shown(score)};
      });
}

// Different entries, some missing, and a query of each row that has none.
Tensor retrieved(const KnnForm& form, RandomTensors& random) {
  std::vector<int32_t> index;
  for_queries(form, [&](int64_t row, int64_t query, int64_t) {
    const int64_t length = form.length[static_cast<size_t>(row)];
    std::vector<int32_t> entries(static_cast<size_t>(length));
    std::iota(entries.begin(), entries.end(), 0);
    for (int64_t k = 0; k < form.top_k; ++k) {
      if (entries.empty() || (form.queries > 1 && query == row) || random.below(5) == 0) {
        index.push_back(-1);
        continue;
      }
      const auto at = entries.begin() + random.below(static_cast<int64_t>(entries.size()));
      index.push_back(*at);
      entries.erase(at);
    }
  });
  return Tensor::from(index, {form.rows, form.queries, form.heads, form.top_k});
}

double& sum_at(const Tensor& lse, int64_t row, int64_t query, int64_t head) {
  return values(lse)[(row * lse.dim(1) + head) * lse.dim(2) + query];
}

// q, index, memory, out, lse.
constexpr size_t kOut = 2 + kMemoryTensors;

Tensors attention_reference(const KnnForm& form, const Tensors& in, bool goes_on) {
  const Entries keys(in, 2, false);
  const Entries stored(in, 2, true);
  const Tensor out = clone(in[kOut]);
  const Tensor lse = clone(in[kOut + 1]);
  for_queries(form, [&](int64_t row, int64_t query, int64_t head) {
    double& log_sum = sum_at(lse, row, query, head);
    if (!goes_on) log_sum = -kInfinity;
    double top = log_sum;
    std::vector<std::pair<int64_t, double>> logits;
    for (int64_t k = 0; k < form.top_k; ++k) {
      const int32_t entry = in[1].data<int32_t>()[((row * form.queries + query) * form.heads + head) * form.top_k + k];
      if (entry < 0) continue;
      logits.emplace_back(entry, product(form, keys, in[0], row, query, head, entry));
      top = std::max(top, logits.back().second);
    }
    double sum = std::exp(log_sum - top);
    if (top == -kInfinity) sum = 0;
    const double before = sum;
    for (const auto& [entry, logit] : logits) sum += std::exp(logit - top);
    for (int64_t d = 0; d < form.value_size; ++d) {
      double& to = element(out, row, query, head, d);
      double total = before == 0 ? 0 : before * to;
      for (const auto& [entry, logit] : logits) {
        total += std::exp(logit - top) * stored.at(row, entry, head / (form.heads / form.kv_heads), d);
      }
      to = sum > 0 ? total / sum : 0;
    }
    log_sum = sum > 0 ? top + std::log(sum) : -kInfinity;
  });
  return {out, lse};
}

void add_attention(std::vector<OpCase>& cases, RandomTensors& random, const KnnForm& form, bool goes_on) {
  const Shape shape{form.rows, form.queries, form.heads, form.value_size};
  Tensors inputs{random.normal({form.rows, form.queries, form.heads, form.size}), retrieved(form, random)};
  for (const Tensor& tensor : memory_tensors(form, random, false)) inputs.push_back(tensor);
  inputs.push_back(random.normal(shape));
  inputs.push_back(random.normal({form.rows, form.heads, form.queries}));
  // One query with nothing before it.
  if (goes_on) {
    values(inputs.back())[0] = -kInfinity;
    std::fill_n(values(inputs[kOut]), form.value_size, 0.0);
  }
  const std::string name = form.name + (goes_on ? "_goes_on" : "");
  const int64_t terms = 2 * form.size + form.top_k;
  add_operation(
      cases, "knn_attention", name, inputs, terms,
      [=](const Tensors& in) {
        ops::knn_attention(in[kOut], in[kOut + 1], {in[0], in[1], assembled(form, in, 2)}, goes_on);
        return Tensors{in[kOut], in[kOut + 1]};
      },
      [=](const Tensors& in) { return attention_reference(form, in, goes_on); }, {kOut + 1}, 3);
  const Tensors forward = attention_reference(form, inputs, goes_on);
  for (size_t i = 0; i < 2; ++i) inputs[kOut + i] = converted(converted(forward[i], DType::f32), DType::f64);
  inputs.push_back(random.normal(shape));
  inputs.push_back(random.normal({form.rows, form.queries, form.heads, form.size}));
  const bool accumulate = goes_on;
  add_operation(
      cases, "knn_attention_backward", name, inputs, terms + form.value_size,
      [=](const Tensors& in) {
        ops::knn_attention_backward(in[kOut + 3], in[kOut + 2], in[kOut], in[kOut + 1],
                                    {in[0], in[1], assembled(form, in, 2)}, accumulate);
        return Tensors{in[kOut + 3]};
      },
      [=](const Tensors& in) {
        const Entries keys(in, 2, false);
        const Entries stored(in, 2, true);
        const Tensor dq = accumulate ? clone(in[kOut + 3]) : Tensor::zeros(in[0].shape(), DType::f64);
        for_queries(form, [&](int64_t row, int64_t query, int64_t head) {
          const int64_t kv_head = head / (form.heads / form.kv_heads);
          for (int64_t k = 0; k < form.top_k; ++k) {
            const int32_t entry =
                in[1].data<int32_t>()[((row * form.queries + query) * form.heads + head) * form.top_k + k];
            if (entry < 0) continue;
            const double logit = product(form, keys, in[0], row, query, head, entry);
            double dp = 0;
            for (int64_t d = 0; d < form.value_size; ++d) {
              dp += element(in[kOut + 2], row, query, head, d) *
                    (stored.at(row, entry, kv_head, d) - element(in[kOut], row, query, head, d));
            }
            const double dlogit = std::exp(logit - sum_at(in[kOut + 1], row, query, head)) * dp;
            for (int64_t d = 0; d < form.size; ++d) {
              element(dq, row, query, head, d) += dlogit * keys.at(row, entry, kv_head, d);
            }
          }
        });
        return Tensors{dq};
      },
      {kOut + 1}, 3);
}

}  // namespace

void add_knn_cases(std::vector<OpCase>& cases) {
  RandomTensors random(40);
  // rows, queries, heads, key heads, sizes of keys and of values, slots, top_k
  const std::vector<KnnForm> forms{
      of_sizes("one", {1, 1, 1, 1, 1, 1, 1, 1}, {.head = {0}, .length = {1}}),
      of_sizes("empty", {2, 5, 2, 2, 5, 3, 11, 3}, {.length = {0, 0}}),
      of_sizes("wraps", {4, 5, 2, 2, 5, 3, 11, 1}, {.head = {0, 3, 10, 5}, .length = {11, 11, 4, 7}}),
      of_sizes("all", {2, 5, 2, 2, 5, 3, 11, 11}, {.length = {11, 11}}),
      of_sizes("more_than_there", {2, 5, 2, 2, 5, 3, 11, 17}, {.length = {11, 0}}),
      of_sizes("grouped", {2, 5, 6, 2, 7, 20, 11, 4}),
      of_sizes("one_key_head", {2, 5, 3, 1, 33, 17, 70, 8}, {.head = {69, 3}, .length = {64, 70}}),
      of_sizes("f32", {2, 3, 2, 2, 20, 36, 11, 3}, {.stored = DType::f32}),
      of_sizes("bf16", {2, 3, 2, 2, 20, 36, 11, 3}, {.stored = DType::bf16}),
      of_sizes("i8", {2, 3, 2, 2, 20, 36, 11, 3}, {.stored = DType::i8}),
      of_sizes("f8", {2, 3, 2, 2, 20, 36, 11, 3}, {.stored = DType::f8}),
      of_sizes("wide", {1, 3, 2, 2, 133, 70, 37, 5}, {.head = {20}, .length = {37}}),
      of_sizes("blocks", {1, 37, 1, 1, 64, 64, 700, 32}, {.head = {650}, .length = {699}}),
      of_sizes("blocks_i8", {1, 19, 2, 1, 48, 16, 300, 7}, {.head = {100}, .length = {290}, .stored = DType::i8}),
      of_sizes("odd_f8", {1, 19, 2, 1, 51, 18, 300, 7}, {.head = {100}, .length = {290}, .stored = DType::f8}),
  };
  for (const KnnForm& form : forms) {
    add_search(cases, random, form, ops::KnnSearch::exact);
    add_search(cases, random, form, ops::KnnSearch::bucketed);
    add_attention(cases, random, form, false);
    add_attention(cases, random, form, true);
  }
  for (const auto& [name, keys] : {std::pair{"equal", Keys::equal},
                                   {"duplicated", Keys::duplicated},
                                   {"clustered", Keys::clustered},
                                   {"rising", Keys::rising},
                                   {"falling", Keys::falling},
                                   {"nan", Keys::with_nan}}) {
    const KnnForm form = of_sizes(name, {1, 3, 1, 1, 5, 3, 240, 6}, {.head = {17}, .length = {237}, .keys = keys});
    add_search(cases, random, form, ops::KnnSearch::exact);
    add_search(cases, random, form, ops::KnnSearch::bucketed);
  }
  // Long enough to be searched in parts; more entries selected than fit into a GPU's shared memory.
  for (const auto& [name, top_k] : {std::pair{"parts", 6}, {"parts_large_top_k", 130}}) {
    const KnnForm form = of_sizes(name, {2, 3, 2, 1, 4, 3, 2500, top_k}, {.head = {17, 90}, .length = {2400, 100}});
    add_search(cases, random, form, ops::KnnSearch::exact);
    add_search(cases, random, form, ops::KnnSearch::bucketed);
  }
  // In bf16 on tensor cores: heads in whole chunks of 8 features, more than a tile of queries or few; more entries
  // selected than a warp has lanes, and than shared memory holds; keys of 8 bits; pieces that are copied from the host.
  std::vector<KnnForm> on_tensor_cores{
      {.name = "cores", .queries = 37, .heads = 4, .size = 16, .value_size = 8, .slots = 150, .top_k = 9},
      {.name = "cores_wide", .rows = 1, .queries = 3, .heads = 1, .kv_heads = 1, .size = 128, .value_size = 64},
      {.name = "cores_narrow", .queries = 65, .heads = 1, .kv_heads = 1, .size = 8, .value_size = 128, .slots = 131},
      {.name = "cores_many", .rows = 1, .queries = 67, .heads = 2, .kv_heads = 1, .size = 72, .value_size = 72},
      {.name = "cores_i8", .rows = 1, .queries = 5, .size = 48, .value_size = 24, .slots = 150, .top_k = 12},
      {.name = "cores_f8", .rows = 1, .queries = 70, .heads = 1, .kv_heads = 1, .size = 112, .value_size = 40}};
  for (KnnForm& form : on_tensor_cores) {
    if (form.slots == 11) form.slots = 230;
    form.head = {static_cast<int32_t>(form.slots) - 30, 3};
    form.length = {static_cast<int32_t>(form.slots) - 1, 40};
    form.head.resize(static_cast<size_t>(form.rows));
    form.length.resize(static_cast<size_t>(form.rows));
  }
  on_tensor_cores[1].top_k = 32;
  on_tensor_cores[3].top_k = 45;
  on_tensor_cores[4].stored = DType::i8;
  on_tensor_cores[5].stored = DType::f8;
  for (const KnnForm& form : on_tensor_cores) {
    KnnForm in_pieces = form;
    in_pieces.name += "_pieces";
    in_pieces.in_host_memory = true;
    for (const ops::KnnSearch search : {ops::KnnSearch::exact, ops::KnnSearch::bucketed}) {
      add_search(cases, random, form, search);
      add_search(cases, random, in_pieces, search);
    }
    add_attention(cases, random, form, false);
    add_attention(cases, random, form, true);
  }
  for (const auto& [name, keys] : {std::pair{"cores_equal", Keys::equal},
                                   {"cores_duplicated", Keys::duplicated},
                                   {"cores_rising", Keys::rising},
                                   {"cores_falling", Keys::falling},
                                   {"cores_nan", Keys::with_nan}}) {
    for (const int64_t top_k : {6, 33}) {
      const KnnForm form = of_sizes(std::string(name) + "_" + std::to_string(top_k), {1, 3, 1, 1, 8, 3, 240, top_k},
                                    {.head = {17}, .length = {237}, .keys = keys, .in_host_memory = top_k == 33});
      add_search(cases, random, form, ops::KnnSearch::exact);
      add_search(cases, random, form, ops::KnnSearch::bucketed);
    }
  }
  for (const bool in_host_memory : {false, true}) {
    const KnnForm form =
        of_sizes(in_host_memory ? "cores_pieces_and_parts" : "cores_parts", {1, 3, 2, 1, 8, 3, 2500, 130},
                 {.head = {17}, .length = {2400}, .in_host_memory = in_host_memory});
    add_search(cases, random, form, ops::KnnSearch::exact);
    KnnForm few = form;
    few.top_k = 11;
    add_search(cases, random, few, ops::KnnSearch::bucketed);
  }
  // Fewer numbers than entries to select: entries with a NaN come last.
  const KnnForm few{.name = "few_numbers", .size = 1, .top_k = 11, .length = {11, 11}, .keys = Keys::with_nan};
  add_search(cases, random, few, ops::KnnSearch::exact);
}

}  // namespace quire::test
