// Compares the functions of listed attention with a composition that gathers the keys of every query and has whole
// matrices.
#include <algorithm>
#include <utility>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/listed_attention.h"
#include "autograd/functions/pointwise.h"
#include "autograd/functions/rotary.h"
#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"
#include "kernels/knn.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"
#include "tests/support/composed_attention.h"
#include "tests/support/rotary_angles.h"

namespace quire::test {

namespace {

using Inputs = std::vector<Variable>;

enum class Step { softmax, landmarks, weights };

// Sizes of queries; of stored blocks; and of lists, of which a row has `count`, 0: one for every query and head. Rows
// begin within their first list, each elsewhere, after `before` queries that read none.
struct OfQueries {
  int64_t rows = 2, queries = 3, heads = 2, kv_heads = 1, size = 4, value_size = 3;
};
struct OfBlocks {
  int64_t count = 7, length = 4, chosen = 2;
  int64_t own = 0;     // blocks of the pass in a row, the last one shorter
  int64_t unread = 0;  // keys behind those of a stored block
};
struct OfLists {
  int64_t count = 0, queries = 4, before = 0;
};

struct ListedForm {
  std::string name;
  Step step = Step::landmarks;
  OfQueries q = {};
  OfBlocks blocks = {};
  OfLists lists = {};
  bool of_heads = false;  // lists are those of heads
  bool of_key_heads = false;
  int64_t width = 0;       // weights of a query and head; 0: weights are those of lists
  bool backwards = false;  // the first queries read the last list
  bool shared = true;      // rows choose among the same blocks
  bool softmax_one = false;
  int64_t pairs = 0;  // 0: not rotated
  bool interleaved = false;
  DType stored = DType::f64;  // f64: as the type of the queries
  double spread = 1;          // of the queries
  double mean = 0;            // of queries, and of keys with the other sign
  double amplification = 8;

  bool rounded() const { return stored != DType::f64; }
  bool has_lists() const { return lists.count > 0; }
  int64_t list_heads() const { return of_key_heads ? q.kv_heads : has_lists() && !of_heads ? 1 : q.heads; }
  int64_t own_keys() const { return blocks.own * blocks.length + 2; }
};

constexpr int64_t kTurns = 5;

// Blocks [R, G, 1 or Hk or H, K], none twice in a list, with -1 at random. The second list of row 0 is empty.
Tensor blocks_of(const ListedForm& f, RandomTensors& random) {
  const int64_t lists = f.has_lists() ? f.lists.count : f.q.queries;
  const int64_t heads = f.list_heads();
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < f.q.rows * lists * heads; ++i) {
    const int64_t row = i / heads / lists;
    std::vector<int32_t> order;
    for (int64_t block = 0; block < f.blocks.count; ++block) {
      if (f.shared || block % f.q.rows == row) order.push_back(static_cast<int32_t>(block));
    }
    for (int64_t b = 0; b < f.blocks.own; ++b) order.push_back(static_cast<int32_t>(-2 - row * f.blocks.own - b));
    for (int64_t n = 0; n < f.blocks.chosen; ++n) {
      if (n < static_cast<int64_t>(order.size())) {
        const auto other = static_cast<size_t>(n + random.below(static_cast<int64_t>(order.size()) - n));
        std::swap(order[static_cast<size_t>(n)], order[other]);
      }
      const bool none = n >= static_cast<int64_t>(order.size()) || i / heads == 1 || random.below(6) == 0;
      chosen.push_back(none ? -1 : order[static_cast<size_t>(n)]);
    }
  }
  return Tensor::from(chosen, {f.q.rows, lists, heads, f.blocks.chosen});
}

Tensor lists_of(const ListedForm& f) {
  if (!f.has_lists()) return {};
  std::vector<int32_t> list;
  for (int64_t i = 0; i < f.q.rows * f.q.queries; ++i) {
    const int64_t t = i % f.q.queries, l = (t - f.lists.before + i / f.q.queries) / f.lists.queries;
    const bool none = t < f.lists.before || l >= f.lists.count;
    list.push_back(static_cast<int32_t>(none ? -1 : (f.backwards ? f.lists.count - 1 - l : l)));
  }
  return Tensor::from(list, {f.q.rows, f.q.queries});
}

// First keys and numbers of keys of the blocks of the pass.
Tensor spans_of(const ListedForm& f) {
  std::vector<int32_t> spans;
  for (int64_t i = 0; i < f.q.rows * f.blocks.own; ++i) {
    const int64_t row = i / f.blocks.own, b = i % f.blocks.own;
    spans.push_back(static_cast<int32_t>(row * f.own_keys() + 1 + b * f.blocks.length));
    spans.push_back(static_cast<int32_t>(f.blocks.length - (b == f.blocks.own - 1 ? 1 : 0)));
  }
  return Tensor::from(spans, {f.q.rows * f.blocks.own, 2});
}

// From q, keys, values, blocks, list, rotation, weight, own keys, own values, own blocks.
ops::ListedAttentionInputs settings_of(const ListedForm& f, const Inputs& x) {
  ops::ListedAttentionInputs in;
  const auto store = [&](const Variable& given, Tensor& to, Tensor& scale) {
    to = f.rounded() && !ops::has_scale(f.stored) ? recast(given.value(), f.stored) : given.value();
    if (!ops::has_scale(f.stored)) return;
    const Tensor small = Tensor::empty(to.shape(), f.stored, to.device());
    scale = Tensor::empty({to.dim(0), to.dim(1), to.dim(2)}, DType::bf16, to.device());
    ops::quantize_vectors(small, scale, to);
    if (to.device() == kCpu) {
      to = small;
    } else {  // as fetch_entries gives them to CUDA's kernels
      to = Tensor::empty_like(to);
      ops::dequantize_vectors(to, small, std::exchange(scale, Tensor()));
    }
  };
  store(x[1], in.keys, in.key_scale);
  store(x[2], in.values, in.value_scale);
  in.blocks = x[3].value();
  in.list = x[4].value();
  in.own_keys = x[7].value();
  in.own_values = x[8].value();
  in.own_blocks = x[9].value();
  in.length = f.blocks.length;
  in.scale = 0.7;
  in.landmarks = f.step == Step::landmarks;
  in.softmax_one = f.softmax_one;
  in.interleaved = f.interleaved;
  if (f.pairs == 0) return in;
  in.rotation = x[5].value();
  in.table = wide_beside(x[0].value(), {kTurns, 2, f.pairs});
  ops::rotary_table(in.table, rotary_frequencies(20, f.pairs, in.table.device()), 0, 3);
  return in;
}

// The entries [R, T, H, K] of lists of the queries, as indices into `blocks`; -1: none.
std::vector<int32_t> entries_of(const ops::ListedAttentionInputs& in, const Shape& entries) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < entries.numel(); ++i) {
    const int64_t head = i / entries[3] % entries[2], line = i / entries[3] / entries[2];
    const int64_t list = in.list.defined() ? in.list.data<int32_t>()[line] : line % entries[1];
    const int64_t own = line / entries[1] * in.blocks.dim(1) + list;
    const int64_t entry = (own * in.blocks.dim(2) + head * in.blocks.dim(2) / entries[2]) * entries[3] + i % entries[3];
    all.push_back(list < 0 || in.blocks.data<int32_t>()[entry] == -1 ? -1 : static_cast<int32_t>(entry));
  }
  return all;
}

// Returns q [R, T, H, K, 1, D], rotated for each block.
Variable rotated(Tape& t, const Variable& q, const ops::ListedAttentionInputs& in, const std::vector<int32_t>& entry,
                 const Shape& entries) {
  const int64_t rows = entries[0], size = q.dim(3);
  Variable x = broadcast(t, reshape(t, q, {rows, entries[1], entries[2], 1, size}),
                         {rows, entries[1], entries[2], entries[3], size});
  if (in.table.defined()) {
    ops::RotaryInputs settings;
    settings.table = in.table;
    settings.interleaved = in.interleaved;
    std::vector<int32_t> position;
    for (const int32_t e : entry) position.push_back(e < 0 ? 0 : in.rotation.data<int32_t>()[e]);
    const int64_t of_row = entries.numel() / rows;
    settings.position = Tensor::from(position, {rows, of_row});
    x = rotary(t, reshape(t, x, {rows, of_row, 1, size}), settings);
  }
  return reshape(t, x, {rows, entries[1], entries[2], entries[3], 1, size});
}

Inputs composed(Tape& t, const ListedForm& f, const Inputs& x) {
  const ops::ListedAttentionInputs in = settings_of(f, x);
  const int64_t length = in.length, stored = in.keys.dim(0) * in.keys.dim(1), kv_heads = in.keys.dim(2),
                chosen = in.blocks.dim(3);
  const Shape entries{x[0].dim(0), x[0].dim(1), x[0].dim(2), chosen};
  const int64_t group = entries[2] / kv_heads, all = chosen * length;
  const std::vector<int32_t> entry = entries_of(in, entries);
  std::vector<int32_t> lines;
  std::vector<uint8_t> regular, marks;
  for (size_t i = 0; i < entry.size(); ++i) {
    const int64_t kv_head = static_cast<int64_t>(i) / chosen % entries[2] / group;
    const int64_t block = entry[i] < 0 ? -1 : in.blocks.data<int32_t>()[entry[i]];
    const int32_t* const span = block < -1 ? in.own_blocks.data<int32_t>() + 2 * (-2 - block) : nullptr;
    const int64_t first = span == nullptr ? block * in.keys.dim(1) : stored + span[0];
    const int64_t keys = block == -1 ? 0 : span == nullptr ? length : span[1];
    for (int64_t j = 0; j < length; ++j) {
      const bool is_mark = in.landmarks && j == keys - 1, there = j < keys;
      lines.push_back(there ? static_cast<int32_t>((first + j) * kv_heads + kv_head) : -1);
      regular.push_back(there && !is_mark ? 1 : 0);
      marks.push_back(there && is_mark ? 1 : 0);
    }
  }
  const Shape keys{entries[0], entries[1], entries[2], chosen, length};
  const Shape flat{entries[0], entries[1], entries[2], all};
  const auto numbers = [](const Tensor& tensor, const Tensor& scale) {
    if (!scale.defined()) return recast(tensor, DType::f64);
    const Tensor wide = Tensor::empty(tensor.shape(), DType::f64);
    ops::dequantize_vectors(wide, tensor, scale);
    return wide;
  };
  const auto lines_of = [&](const Variable& given, const Tensor& tensor, const Tensor& scale, const Variable& own) {
    const auto table = [&](const Variable& of) { return reshape(t, of, {of.shape().numel() / of.dim(3), of.dim(3)}); };
    Variable from = table(f.rounded() ? Variable::constant(numbers(tensor, scale)) : given);
    if (own.defined()) from = concatenate(t, std::vector{from, table(own)}, 0);
    return gather_rows(t, from, Tensor::from(lines, keys));
  };
  const Variable q = rotated(t, x[0], in, entry, entries);
  const Variable logits = scale(t, sum(t, multiply(t, q, lines_of(x[1], in.keys, in.key_scale, x[7])), -1), in.scale);
  const Tensor of_regular = Tensor::from(regular, keys), of_marks = Tensor::from(marks, flat);
  Variable within = softmax(t, logits, of_regular), lse;
  if (f.softmax_one) {
    Shape ones = keys;
    ones[4] = 1;
    const Variable one = Variable::constant(Tensor::zeros(ones, DType::f64));
    within = slice(t, softmax(t, concatenate(t, std::vector{logits, one}, 4)), 4, 0, length);
  }
  const auto lse_of = [&](const Tensor& mask) {
    return permute(t, log_sum_exp(t, reshape(t, logits, flat), mask), {0, 2, 1});
  };
  Variable weights;
  if (f.step == Step::weights) {
    const Tensor index = Tensor::from(entry, entries);
    std::vector<uint8_t> there;
    for (const int32_t e : entry) there.push_back(e < 0 ? 0 : 1);
    Variable shares;
    if (f.width == 0) {
      shares = gather_rows(t, reshape(t, x[6], {x[6].shape().numel(), 1}), index);
    } else {
      const Variable of_queries = permute(t, slice(t, x[6], 3, 0, chosen), {0, 2, 1, 3});
      const Variable kept = select(t, Tensor::from(there, entries), of_queries, {});
      shares = reshape(t, kept, {entries[0], entries[1], entries[2], chosen, 1});
    }
    weights = multiply(t, within, shares);
  } else if (f.step == Step::landmarks) {
    const Variable shares = sum(t, reshape(t, softmax(t, reshape(t, logits, flat), of_marks), keys), -1, true);
    weights = multiply(t, within, shares);
    lse = lse_of(of_marks);
  } else {
    weights = softmax(t, reshape(t, logits, flat), of_regular.reshape(flat));
    lse = lse_of(of_regular.reshape(flat));
  }
  const int64_t value_size = in.values.dim(3);
  const Variable values = reshape(t, lines_of(x[2], in.values, in.value_scale, x[8]),
                                  {entries[0], entries[1], entries[2], all, value_size});
  const Shape by_key{entries[0], entries[1], entries[2], all, 1};
  const Variable out = sum(t, multiply(t, reshape(t, weights, by_key), values), 3);
  return lse.defined() ? both(t, {out, lse}) : Inputs{out};
}

// Keys of the pass are rotated already.
Tensor rotations_of(const Tensor& blocks, RandomTensors& random) {
  std::vector<int32_t> rotations = random.integers(blocks.shape(), 0, kTurns).to_vector<int32_t>();
  for (size_t i = 0; i < rotations.size(); ++i) {
    if (blocks.data<int32_t>()[i] < 0) rotations[i] = 0;
  }
  return Tensor::from(rotations, blocks.shape());
}

void add_listed(std::vector<OpCase>& cases, const ListedForm& f) {
  RandomTensors random(static_cast<uint32_t>(cases.size()));
  const Tensor blocks = blocks_of(f, random);
  std::vector<Tensor> inputs{
      random.normal({f.q.rows, f.q.queries, f.q.heads, f.q.size}, f.spread, f.mean),
      random.normal({f.blocks.count, f.blocks.length + f.blocks.unread, f.q.kv_heads, f.q.size}, 1, -f.mean),
      random.normal({f.blocks.count, f.blocks.length + f.blocks.unread, f.q.kv_heads, f.q.value_size}),
      blocks,
      lists_of(f),
      f.pairs > 0 ? rotations_of(blocks, random) : Tensor(),
      f.step != Step::weights ? Tensor()
      : f.width > 0           ? random.normal({f.q.rows, f.q.heads, f.q.queries, f.width})
                              : random.normal({f.q.rows, f.lists.count, f.blocks.chosen})};
  const bool own = f.blocks.own > 0;
  inputs.push_back(own ? random.normal({f.q.rows, f.own_keys(), f.q.kv_heads, f.q.size}) : Tensor());
  inputs.push_back(own ? random.normal({f.q.rows, f.own_keys(), f.q.kv_heads, f.q.value_size}) : Tensor());
  inputs.push_back(own ? spans_of(f) : Tensor());
  OpCase made =
      function_case("listed_attention", f.name, inputs, OpCase::Function([=](Tape& t, const Inputs& x) {
                      const ops::ListedAttentionInputs in = settings_of(f, x);
                      const auto stored = [&](const Variable& given, const Tensor& tensor) {
                        return f.rounded() ? Variable::constant(tensor) : given;
                      };
                      const ListedVariables of{stored(x[1], in.keys), stored(x[2], in.values), x[7], x[8], x[6]};
                      const BlockAttention read = listed_attention(t, x[0], of, in);
                      return f.step == Step::weights ? Inputs{read.out} : both(t, read);
                    }));
  made.composition = [=](Tape& t, const Inputs& x) { return composed(t, f, x); };
  made.wide = {6};
  if (f.step == Step::landmarks) {
    made.constants = {1, 2, 7, 8};
  } else if (f.rounded()) {
    made.constants = {1, 2};
  }
  made.sum_length = f.q.rows * f.q.queries * f.blocks.chosen * f.blocks.length;
  made.amplification = f.amplification;
  made.roundings = 24;
  cases.push_back(made);
}

}  // namespace

void add_listed_cases(std::vector<OpCase>& cases) {
  using enum Step;
  const OfQueries eleven{1, 11};
  for (const ListedForm& form : std::vector<ListedForm>{
           {.name = "small", .pairs = 2},
           {.name = "plain", .step = softmax, .pairs = 2},
           {.name = "not_rotated", .blocks = {7, 4, 3}},
           {.name = "interleaved", .q = {2, 3, 2, 1, 7}, .pairs = 2, .interleaved = true},
           {.name = "grouped", .step = softmax, .q = {3, 9, 4, 2}, .blocks = {7, 51}},
           {.name = "long", .q = {1, 2, 1}, .blocks = {7, 71}, .pairs = 2},
           {.name = "none", .blocks = {7, 4, 0}},
           {.name = "bf16", .pairs = 2, .stored = DType::bf16},
           {.name = "i8", .pairs = 2, .stored = DType::i8},
           {.name = "f8", .pairs = 2, .stored = DType::f8},
           {.name = "of_lists", .q = {2, 11}, .lists = {3}, .pairs = 2},
           {.name = "of_heads", .step = softmax, .q = {2, 11}, .lists = {2, 4, 1}, .of_heads = true},
           {.name = "weights", .step = weights, .q = {2, 11}, .blocks = {4}, .lists = {3}},
           {.name = "one_key", .step = weights, .q = {1, 1, 1}, .blocks = {7, 1}, .lists = {1}},
           {.name = "one", .step = weights, .q = {1, 11, 4, 2}, .blocks = {3}, .lists = {3}, .softmax_one = true},
           {.name = "late", .step = weights, .q = {3, 8}, .lists = {2, 3, 3}, .shared = false},
           {.name = "more", .step = weights, .q = eleven, .blocks = {2, 4, 5}, .lists = {3}, .backwards = true},
           {.name = "of_one_query", .step = weights, .q = {2, 5}, .blocks = {7, 1, 1}, .lists = {6, 1}},
           {.name = "tiles", .step = weights, .q = {1, 201, 2, 2, 2, 1}, .blocks = {3, 6}, .lists = {4, 130}},
           {.name = "over_a_tile",
           .step = weights,
           .q = {1, 7},
           .blocks = {3, 70},
           .lists = {3, 5},
           .softmax_one = true},
           {.name = "wide", .step = weights, .q = {1, 4, 1, 1, 132, 70}, .lists = {2}, .spread = 0.3},
           {.name = "large", .step = weights, .q = eleven, .lists = {3}, .spread = 20, .amplification = 400},
           {.name = "low_one",
           .step = weights,
           .q = eleven,
           .lists = {3},
           .softmax_one = true,
           .spread = 0.5,
           .mean = 3,
           .amplification = 200},
           // Blocks of the pass beside stored ones, and lists of key heads with weights of queries.
           {.name = "own", .step = softmax, .q = {2, 9, 4, 2}, .blocks = {3, 4, 3, 3, 1}, .pairs = 2},
           {.name = "own_landmarks", .q = {2, 9, 4, 2}, .blocks = {3, 5, 3, 2}, .of_key_heads = true},
           {.name = "own_alone", .step = softmax, .q = {2, 9, 2, 1}, .blocks = {0, 4, 3, 3}},
           {.name = "by_query",
           .step = weights,
           .q = {2, 9, 6, 2},
           .blocks = {4, 4, 3, 3, 1},
           .of_key_heads = true,
           .width = 5},
           {.name = "by_query_of_tiles",
           .step = weights,
           .q = {1, 70, 2, 1, 2},
           .blocks = {1, 3, 1, 1},
           .of_key_heads = true,
           .width = 1},
           {.name = "by_query_of_many_heads",
           .step = weights,
           .q = {1, 3, 101, 1, 2},
           .blocks = {2, 71},
           .of_key_heads = true,
           .width = 2},
           {.name = "by_query_f8",
           .step = weights,
           .blocks = {4, 4, 2, 1},
           .width = 2,
           .stored = DType::f8,
           .spread = 0.7},
           {.name = "weights_bf16", .step = weights, .q = {2, 11}, .lists = {3}, .stored = DType::bf16, .spread = 0.7},
           {.name = "weights_i8",
           .step = weights,
           .q = {2, 11, 4, 2, 19, 17},
           .lists = {3},
           .stored = DType::i8,
           .spread = 0.7},
       }) {
    add_listed(cases, form);
  }
}

// Several queries and heads in whole chunks of 8 features: tensor cores in bf16, 64 entries of a list at a time.
void add_listed_chunk_cases(std::vector<OpCase>& cases) {
  using enum Step;
  const OfQueries few{1, 30, 2, 1, 8, 8};
  std::vector<ListedForm> forms{
      {.name = "chunks", .q = {2, 21, 4, 2, 16, 24}, .blocks = {7, 11, 3}, .pairs = 8},
      {.name = "chunks_plain",
       .step = softmax,
       .q = {2, 21, 2, 1, 24, 8},
       .blocks = {7, 64},
       .pairs = 5,
       .interleaved = true},
      {.name = "chunks_not_shared", .q = {1, 41, 2, 1, 8, 8}, .blocks = {90}, .pairs = 3},
      {.name = "chunks_two", .q = {2, 2, 1, 1, 8, 8}},
      {.name = "chunks_long", .q = {1, 30, 2, 1, 16, 16}, .blocks = {7, 133}, .pairs = 4},
      {.name = "chunks_landmark_behind", .q = few, .blocks = {7, 65}, .pairs = 4},  // it has a tile to itself
      {.name = "chunks_long_plain", .step = softmax, .q = few, .blocks = {7, 70}, .pairs = 2},
      {.name = "chunks_wide", .q = {1, 3, 2, 1, 16, 136}, .blocks = {7, 9}},
      {.name = "chunks_weights", .step = weights, .q = {2, 71, 4, 2, 16, 24}, .blocks = {3, 64}, .lists = {2, 66, 3}},
      {.name = "chunks_weights_long",
       .step = weights,
       .q = {1, 20, 2, 1, 24, 8},
       .blocks = {3, 150, 3},
       .lists = {3, 9},
       .softmax_one = true},
      {.name = "chunks_weights_of_tiles",
       .step = weights,
       .q = {1, 205, 1, 1, 8, 8},
       .blocks = {3, 5},
       .lists = {2, 170}},
  };
  for (ListedForm& form : forms) form.spread = 0.5;
  const std::vector<ListedForm> others{
      {.name = "chunks_widest", .q = {1, 20, 2, 1, 128, 128}, .blocks = {7, 9}, .pairs = 64, .spread = 0.1},
      {.name = "chunks_weights_of_rows",
       .step = weights,
       .q = {3, 37, 2, 2, 64, 40},
       .blocks = {6, 19, 3},
       .lists = {2, 21},
       .shared = false,
       .spread = 0.2},
      {.name = "chunks_weights_widest",
       .step = weights,
       .q = {1, 40, 2, 1, 128, 128},
       .blocks = {2, 66},
       .lists = {1, 38},
       .spread = 0.1},
      {.name = "chunks_weights_large", .step = weights, .q = few, .lists = {8}, .spread = 20, .amplification = 400},
      {.name = "chunks_weights_low_one",
       .step = weights,
       .q = few,
       .lists = {8},
       .softmax_one = true,
       .spread = 0.5,
       .mean = 2,
       .amplification = 200},
  };
  forms.insert(forms.end(), others.begin(), others.end());
  for (const ListedForm& form : forms) add_listed(cases, form);
}

}  // namespace quire::test
