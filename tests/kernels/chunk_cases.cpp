// Compares attention to chosen chunks with a composition that copies every chosen chunk.
#include <algorithm>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/chunks.h"
#include "autograd/functions/rows.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

struct ChunkForm {
  std::string name;
  int64_t rows = 2, queries = 5, heads = 2, kv_heads = 1, size = 4, value_size = 3;
  int64_t chunks = 6, length = 4, chosen = 2, width = 2;
  double spread = 1;  // of queries and keys
};

// Lists of different chunks, some of them shorter.
Tensor lists_of(RandomTensors& random, const ChunkForm& f) {
  const Shape shape{f.rows, f.kv_heads, f.queries, f.chosen};
  const std::vector<int32_t> drawn = random.integers(shape, 0, static_cast<int32_t>(f.chunks)).to_vector<int32_t>();
  std::vector<int32_t> lists;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const auto begin = static_cast<int64_t>(i) / f.chosen * f.chosen;
    const bool again = std::find(lists.begin() + begin, lists.end(), drawn[i]) != lists.end();
    lists.push_back(again ? -1 : drawn[i]);
  }
  return Tensor::from(lists, shape);
}

Variable composed_chunk_attention(Tape& t, const std::vector<Variable>& x, double factor) {
  const Variable &q = x[0], &keys = x[1], &values = x[2], &weight = x[3];
  const Tensor& chosen = x[4].value();
  const int64_t rows = q.dim(0), queries = q.dim(1), heads = q.dim(2), kv_heads = keys.dim(1), chunks = keys.dim(2);
  const int64_t length = keys.dim(3), count = chosen.dim(3);
  std::vector<int32_t> lines;
  std::vector<uint8_t> read;
  for (int64_t i = 0; i < rows * queries * heads * count; ++i) {
    const int64_t n = i % count, head = i / count % heads, t_row = i / count / heads;
    const int64_t row = t_row / queries, part = row * kv_heads + head / (heads / kv_heads);
    const int32_t chunk = chosen.data<int32_t>()[(part * queries + t_row % queries) * count + n];
    lines.push_back(chunk < 0 ? -1 : static_cast<int32_t>(part * chunks + chunk));
    read.push_back(chunk < 0 ? 0 : 1);
  }
  const auto lines_of = [&](const Variable& of, int64_t size) {
    const Variable table = reshape(t, of, {rows * kv_heads * chunks, length * size});
    const Variable found = gather_rows(t, table, Tensor::from(lines, {rows * queries * heads, count}));
    return reshape(t, found, {rows * queries * heads, count, length, size});
  };
  const Variable query = reshape(t, q, {rows * queries * heads, 1, 1, q.dim(3)});
  const Variable logits = scale(t, sum(t, multiply(t, query, lines_of(keys, q.dim(3))), -1), factor);
  const Variable p = reshape(t, softmax(t, logits), {rows * queries * heads, count, length, 1});
  const Variable given = sum(t, multiply(t, p, lines_of(values, values.dim(4))), 2);
  const Variable shares = permute(t, slice(t, weight, 3, 0, count), {0, 2, 1, 3});
  const Variable kept = select(t, Tensor::from(read, {rows, queries, heads, count}), shares, {});
  const Variable weighted = multiply(t, given, reshape(t, kept, {rows * queries * heads, count, 1}));
  return reshape(t, sum(t, weighted, 1), {rows, queries, heads, values.dim(4)});
}

void push_chunks(std::vector<OpCase>& cases, const ChunkForm& f) {
  RandomTensors random(static_cast<uint32_t>(cases.size()));
  const std::vector<Tensor> inputs{random.normal({f.rows, f.queries, f.heads, f.size}, f.spread),
                                   random.normal({f.rows, f.kv_heads, f.chunks, f.length, f.size}, f.spread),
                                   random.normal({f.rows, f.kv_heads, f.chunks, f.length, f.value_size}),
                                   random.normal({f.rows, f.heads, f.queries, f.width}), lists_of(random, f)};
  constexpr double kScale = 0.6;
  OpCase made = function_case("chunk_attention", f.name, inputs, OneOutput([](Tape& t, const std::vector<Variable>& x) {
                                return chunk_attention(t, x[0], x[1], x[2], x[3], x[4].value(), kScale);
                              }));
  made.composition =
      one_output([](Tape& t, const std::vector<Variable>& x) { return composed_chunk_attention(t, x, kScale); });
  made.wide = {3};
  made.sum_length = f.chosen * f.length;
  made.amplification = 8;
  made.roundings = 12;
  cases.push_back(made);
}

}  // namespace

void add_chunk_cases(std::vector<OpCase>& cases) {
  for (const ChunkForm& form : {
           ChunkForm{.name = "small"},
           ChunkForm{.name = "groups", .rows = 2, .queries = 9, .heads = 6, .kv_heads = 2, .chosen = 3, .width = 5},
           ChunkForm{.name = "long", .rows = 1, .queries = 3, .size = 7, .chunks = 2, .length = 71},
           // A chunk that more queries read than a tile has.
           ChunkForm{.name = "tiles", .rows = 1, .queries = 70, .size = 2, .chunks = 2, .length = 3, .chosen = 1},
           ChunkForm{.name = "two_keys", .length = 2, .chosen = 1, .width = 3},
           ChunkForm{.name = "many_heads", .rows = 1, .queries = 3, .heads = 101, .size = 2},
           ChunkForm{.name = "far_apart", .spread = 5},
       }) {
    push_chunks(cases, form);
  }
}

}  // namespace quire::test
