// Compares the fused kernel of attention to blocks with a composition that has whole matrices.
#include <algorithm>
#include <set>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/blocks.h"
#include "autograd/functions/pointwise.h"
#include "autograd/functions/rotary.h"
#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"
#include "tests/support/composed_attention.h"

namespace quire::test {

namespace {

struct FormSizes {
  int64_t rows = 2, queries = 7, before = 0, heads = 2, kv_heads = 1, size = 3, value_size = 4;
};
struct Form {
  std::string name;
  FormSizes of = {};
  int64_t period = 3;  // keys of a block, landmark included
  bool landmarks = true;
  bool grouped = true;
  int64_t document = 0;      // keys after which a document ends and another one begins; 0: never
  int64_t unseen = 0;        // keys at the beginning of row 0 that nobody sees
  int64_t padding = 0;       // queries, and keys, at the end of row 1
  int64_t empty_blocks = 0;  // blocks at the beginning that are a landmark alone
  bool empty_blocks_count = false;
  double dropout = 0;
  bool closed = false;  // every other block is closed
  bool own_block = true;
  double spread = 2;  // of the queries
};

// Blocks that are longer than a tile of keys.
Form of_long_blocks(const std::string& name, bool grouped, double spread, int64_t size = 1) {
  Form f{.name = name, .of = {1, 70, 331, 1, 1, size, size}, .period = 200};
  f.grouped = grouped;
  f.spread = spread;
  return f;
}

// Rows differ in phase: row r begins r keys into a block.
ops::BlockAttentionInputs blocks_of(const Form& f) {
  const int64_t keys = f.of.before + f.of.queries;
  std::vector<int32_t> block, first;
  std::vector<uint8_t> landmark;
  for (int64_t row = 0; row < f.of.rows; ++row) {
    int32_t number = -1;
    std::vector<int32_t> begins;  // the first block of each key's document
    int32_t begin = 0;
    bool closed = true;
    for (int64_t j = 0; j < keys; ++j) {
      const bool starts = f.document > 0 && j > 0 && j % f.document == 0;
      if (closed || starts) ++number;
      if (starts) begin = number;
      const int64_t at = f.document > 0 ? j % f.document : j + row;
      const bool last = j < f.empty_blocks || at % f.period == f.period - 1;
      closed = last;
      const bool hidden = row == 0 ? j < f.unseen : row == 1 && j >= keys - f.padding;
      block.push_back(hidden ? -1 : number);
      landmark.push_back(last && !hidden ? (f.closed && number % 2 == row % 2 ? 2 : 1) : 0);
      begins.push_back(begin);
    }
    for (int64_t i = 0; i < f.of.queries; ++i) {
      const bool padded = row == 1 && i >= f.of.queries - f.padding;
      first.push_back(padded ? static_cast<int32_t>(keys) : begins[static_cast<size_t>(f.of.before + i)]);
    }
  }
  ops::BlockAttentionInputs in;
  in.block = Tensor::from(block, {f.of.rows, keys});
  in.first = Tensor::from(first, {f.of.rows, f.of.queries});
  if (f.landmarks) in.landmark = Tensor::from(landmark, {f.of.rows, keys});
  in.scale = 0.6;
  in.grouped = f.grouped;
  in.empty_blocks_count = f.empty_blocks_count;
  in.dropout = f.dropout;
  in.own_block = f.own_block;
  in.key = {3, 5};
  in.scope = 7;
  in.first_row = 4;
  return in;
}

void add_form(std::vector<OpCase>& cases, const Form& f, uint32_t seed) {
  RandomTensors random(seed);
  const int64_t keys = f.of.before + f.of.queries;
  const ops::BlockAttentionInputs in = blocks_of(f);
  Tensors inputs{random.normal({f.of.rows, f.of.queries, f.of.heads, f.of.size}, f.spread),
                 random.normal({f.of.rows, keys, f.of.kv_heads, f.of.size}),
                 random.normal({f.of.rows, keys, f.of.kv_heads, f.of.value_size}), in.block, in.first};
  if (in.landmark.defined()) inputs.push_back(in.landmark);
  const auto settings = [in](const Inputs& x) {
    ops::BlockAttentionInputs with = in;
    with.block = x[3].value();
    with.first = x[4].value();
    if (in.landmark.defined()) with.landmark = x[5].value();
    return with;
  };
  OpCase made = function_case("block_attention", f.name, inputs, OpCase::Function([=](Tape& t, const Inputs& x) {
                                return both(t, block_attention(t, x[0], x[1], x[2], settings(x)));
                              }));
  made.composition = [=](Tape& t, const Inputs& x) {
    return both(t, composed_block_attention(t, x[0], x[1], x[2], settings(x)));
  };
  made.sum_length = f.of.rows * f.of.queries * keys;
  made.amplification = 8;
  made.roundings = 24;
  cases.push_back(made);
}

// The softmax over the gates of two attentions.
void add_join(std::vector<OpCase>& cases) {
  RandomTensors random(77);
  Tensors inputs{random.normal({2, 3, 2, 4}), random.normal({2, 2, 3}), random.normal({2, 3, 2, 4}),
                 random.normal({2, 2, 3})};
  OpCase made = function_case("join", "", inputs, OpCase::Function([](Tape& t, const Inputs& x) {
                                const BlockAttention both = join(t, {x[0], x[1]}, {x[2], x[3]});
                                return Inputs{both.out, both.lse};
                              }));
  made.composition = [](Tape& t, const Inputs& x) {
    const Variable a = exp(t, x[1]), b = exp(t, x[3]);
    const Variable whole = add(t, a, b);
    const auto part = [&](const Variable& out, const Variable& of) {
      return multiply(t, out, reshape(t, permute(t, divide(t, of, whole), {0, 2, 1}), {2, 3, 2, 1}));
    };
    return Inputs{add(t, part(x[0], a), part(x[2], b)), log(t, whole)};
  };
  made.wide = {1, 3};
  made.sum_length = 4;
  made.amplification = 8;
  made.roundings = 24;
  cases.push_back(made);
}

// Adds cases of the context-miss token, one additional gate: its share, and the shares that are left to the others.
void add_context_miss(std::vector<OpCase>& cases) {
  RandomTensors random(78);
  const Tensors inputs{random.normal({2, 3, 2, 4}), random.normal({2, 2, 3}), random.normal({2, 3, 2, 1})};
  OpCase made = function_case("context_miss", "", inputs, OpCase::Function([](Tape& t, const Inputs& x) {
                                const ContextMiss miss = context_miss(t, {x[0], x[1]}, x[2]);
                                return Inputs{multiply(t, x[0], miss.kept), miss.share};
                              }));
  made.composition = [](Tape& t, const Inputs& x) {
    const Variable others = exp(t, reshape(t, permute(t, x[1], {0, 2, 1}), {2, 3, 2, 1}));
    const Variable token = exp(t, x[2]);
    const Variable whole = add(t, others, token);
    return Inputs{multiply(t, x[0], divide(t, others, whole)), divide(t, token, whole)};
  };
  made.wide = {1};
  made.sum_length = 4;
  made.amplification = 8;
  made.roundings = 24;
  cases.push_back(made);
}

struct PlacingForm {
  std::string name;
  int64_t slots, stored, chosen;
  bool stingy;
};

void add_placing(std::vector<OpCase>& cases, const PlacingForm& f, uint32_t seed) {
  RandomTensors random(seed);
  constexpr int64_t kRows = 3, kQueries = 4, kHeads = 2;
  const int64_t candidates = f.stored + 3;
  // A list has no candidate twice.
  std::vector<int32_t> index;
  for (int64_t i = 0; i < kRows * kQueries * kHeads; ++i) {
    std::vector<int32_t> order;
    for (int32_t n = 0; n < candidates; ++n) order.push_back(n);
    for (int64_t n = 0; n < f.chosen; ++n) {
      const auto other = static_cast<size_t>(n + random.below(candidates - n));
      std::swap(order[static_cast<size_t>(n)], order[other]);
      index.push_back(random.below(5) == 0 ? -1 : order[static_cast<size_t>(n)]);
    }
  }
  std::vector<int32_t> length, first, places;
  for (int64_t r = 0; r < kRows; ++r) {
    length.push_back(static_cast<int32_t>(r == 0 ? f.stored : random.below(f.stored + 1)));
    first.push_back(static_cast<int32_t>(f.stored - length.back()));
    places.push_back(static_cast<int32_t>(std::min<int64_t>(length.back(), f.chosen + 1)));
  }
  Tensors inputs{Tensor::from(index, {kRows, kQueries, kHeads, f.chosen}), random.integers({kRows}, 0, f.slots),
                 Tensor::from(length, {kRows}), Tensor::from(first, {kRows}),
                 f.stingy ? Tensor::from(places, {kRows}) : Tensor()};
  OpCase made{
      "place_blocks", f.name, inputs, [f](const Tensors& in) {
        const Tensors out{like(in[0]), like(in[0]), like(in[0])};
        ops::place_blocks(out[0], out[1], out[2], {in[0], in[1], in[2], in[3], f.slots, f.stored, in[4], {}, {}});
        return Tensors{shown(out[0]), shown(out[1]), shown(out[2])};
      }};
  made.reference = [f](const Tensors& in) {
    const Tensors out{like(in[0]), like(in[0]), like(in[0])};
    for (int64_t query = 0; query < kRows * kQueries * kHeads; ++query) {
      const int64_t row = query / (kQueries * kHeads);
      const int32_t carried = in[2].data<int32_t>()[row];
      const int32_t oldest = in[3].data<int32_t>()[row];
      const auto at = [&](const Tensor& tensor, int64_t n) -> int32_t& {
        return tensor.data<int32_t>()[query * f.chosen + n];
      };
      std::set<int32_t> ages;
      for (int64_t n = 0; n < f.chosen; ++n) {
        const int32_t candidate = at(in[0], n);
        at(out[2], n) = candidate >= f.stored ? static_cast<int32_t>(candidate - f.stored) : -1;
        if (candidate >= oldest && candidate < f.stored) ages.insert(candidate - oldest);
        at(out[0], n) = at(out[1], n) = -1;
      }
      int64_t rank = 0;
      const auto count = static_cast<int32_t>(ages.size());
      for (const int32_t age : ages) {
        int64_t slot = in[1].data<int32_t>()[row];
        for (int32_t back = carried; back > age; --back) slot = (slot + f.slots - 1) % f.slots;
        at(out[0], rank) = static_cast<int32_t>(row * f.slots + slot);
        // Section 4.4 of the specification: place r + (P - k') of P for the k' newest, else place r.
        const int32_t before = f.stingy ? in[4].data<int32_t>()[row] : carried;
        const int64_t place = !f.stingy ? age : (age >= carried - count ? rank + before - count : rank);
        at(out[1], rank) = static_cast<int32_t>(before - place);
        ++rank;
      }
    }
    return Tensors{shown(out[0]), shown(out[1]), shown(out[2])};
  };
  made.sum_length = 0;
  cases.push_back(made);
}

}  // namespace

void add_block_cases(std::vector<OpCase>& cases) {
  uint32_t seed = 251;
  for (const Form& form : {
           Form{.name = "one", .of = {1, 1, 0, 1, 1, 1, 1}},
           Form{.name = "small"},
           Form{.name = "phases", .of = {4, 13, 0, 4, 2}, .period = 4},
           Form{.name = "prefix", .of = {2, 5, 6}, .unseen = 2},
           Form{.name = "no_landmark_reached", .period = 40},
           Form{.name = "landmarks_only", .period = 1},
           Form{.name = "landmarks_only_count", .period = 1, .empty_blocks_count = true},
           Form{.name = "empty_blocks", .of = {2, 9}, .empty_blocks = 2},
           Form{.name = "empty_blocks_count", .of = {2, 9}, .empty_blocks = 2, .empty_blocks_count = true},
           Form{.name = "documents", .of = {2, 12}, .document = 5, .padding = 3},
           Form{.name = "whole_documents", .of = {2, 13}, .document = 6},
           Form{.name = "late_document", .of = {1, 5, 140, 1, 1, 1, 1}, .period = 10, .document = 100},
           Form{.name = "dropout", .of = {3, 14}, .dropout = 0.4},
           Form{.name = "tiles", .of = {1, 150, 0, 1, 1, 2, 2}, .period = 21},
           of_long_blocks("long_blocks", true, 2),
           Form{.name = "wide", .of = {1, 4, 2, 1, 1, 132, 70}, .spread = 0.3},
           Form{.name = "closed", .of = {2, 13}, .closed = true},
           Form{.name = "closed_without_own", .of = {2, 13}, .closed = true, .own_block = false},
           Form{.name = "not_grouped", .of = {3, 13, 0, 4, 2}, .grouped = false},
           Form{.name = "not_grouped_documents",
           .of = {2, 12},
           .grouped = false,
           .document = 5,
           .padding = 3,
           .empty_blocks = 2},
           of_long_blocks("not_grouped_long", false, 1),
           Form{.name = "plain_blocks", .of = {2, 10}, .landmarks = false},
           // Heads in whole chunks of 8 features: tensor cores in bf16.
           Form{.name = "chunks_one", .of = {1, 1, 0, 1, 1, 8, 8}},
           Form{.name = "chunks", .of = {3, 70, 23, 4, 2, 16, 24}, .period = 9, .spread = 0.5},
           Form{.name = "chunks_whole_tiles", .of = {2, 131, 0, 1, 1, 24, 8}, .period = 64, .spread = 0.5},
           of_long_blocks("chunks_long", true, 0.5, 16),
           of_long_blocks("chunks_long_not_grouped", false, 0.5, 8),
           Form{.name = "chunks_empty",
           .of = {2, 40, 0, 2, 1, 8, 16},
           .document = 17,
           .unseen = 4,
           .padding = 3,
           .empty_blocks = 3,
           .empty_blocks_count = true,
           .dropout = 0.3,
           .spread = 1},
           Form{.name = "chunks_landmarks_only", .of = {2, 21, 0, 2, 1, 8, 8}, .period = 1},
           Form{.name = "chunks_dropout", .of = {3, 66, 0, 1, 1, 16, 8}, .period = 11, .dropout = 0.4, .spread = 0.5},
           Form{.name = "chunks_closed", .of = {2, 33, 9, 2, 1, 8, 8}, .closed = true, .own_block = false, .spread = 1},
           Form{.name = "chunks_widest", .of = {1, 69, 3, 2, 1, 128, 128}, .period = 33, .spread = 0.1},
           // In the backward pass values are too wide.
           Form{.name = "chunks_wide", .of = {1, 9, 2, 1, 1, 72, 136}, .spread = 0.2},
       }) {
    add_form(cases, form, seed++);
  }
  add_join(cases);
  add_context_miss(cases);
  for (const PlacingForm& form : {PlacingForm{"read", 5, 5, 4, false},
                                  {"read_more", 9, 4, 3, false},
                                  {"stingy", 7, 7, 3, true},
                                  {"stingy_few", 8, 3, 5, true},
                                  {"none", 4, 0, 2, true}}) {
    add_placing(cases, form, seed++);
  }
}

}  // namespace quire::test
