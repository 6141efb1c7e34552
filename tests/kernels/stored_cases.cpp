// Compares the fused kernel of attention to stored blocks with a composition that has whole matrices.
#include <algorithm>

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
#include "tests/support/rotary_angles.h"

namespace quire::test {

namespace {

using Inputs = std::vector<Variable>;

struct StoredForm {
  std::string name;
  int64_t rows = 2, queries = 3, heads = 2, kv_heads = 1, size = 4, value_size = 3;
  int64_t slots = 7, length = 4, chosen = 2;
  int64_t pairs = 2;  // 0: not rotated
  bool landmarks = true;
  bool interleaved = false;
  bool rounded = false;  // stored as bf16
  double spread = 1;     // of queries and keys
};

// Computes one softmax over the keys that a query reads, or over landmarks and then within blocks; q is rotated for
// each block.
BlockAttention composed_stored_attention(Tape& t, const Variable& q, const ops::StoredAttentionInputs& in) {
  const int64_t rows = q.dim(0), queries = q.dim(1), heads = q.dim(2), size = q.dim(3);
  const int64_t chosen = in.slot.dim(3), length = in.keys.dim(1), kv_heads = in.keys.dim(2);
  const Shape blocks{rows, queries, heads, chosen};
  std::vector<int32_t> lines;
  std::vector<uint8_t> regular, marks, reads;
  for (int64_t i = 0; i < in.slot.numel(); ++i) {
    const int32_t slot = in.slot.data<int32_t>()[i];
    const int64_t kv_head = i / chosen % heads / (heads / kv_heads);
    reads.push_back(slot >= 0 ? 1 : 0);
    for (int64_t j = 0; j < length; ++j) {
      const bool is_landmark = in.landmarks && j == length - 1;
      lines.push_back(static_cast<int32_t>(slot < 0 ? -1 : (slot * length + j) * kv_heads + kv_head));
      regular.push_back(slot >= 0 && !is_landmark ? 1 : 0);
      marks.push_back(slot >= 0 && is_landmark ? 1 : 0);
    }
  }
  const Shape keys{rows, queries, heads, chosen, length};
  const auto lines_of = [&](const Tensor& stored) {
    const Tensor wide = recast(stored, DType::f64);
    return gather_rows(t, Variable::constant(wide.reshape({wide.numel() / wide.dim(3), wide.dim(3)})),
                       Tensor::from(lines, keys));
  };
  Variable rotated = broadcast(t, reshape(t, q, {rows, queries, heads, 1, size}), {rows, queries, heads, chosen, size});
  if (in.table.defined()) {
    ops::RotaryInputs settings;
    settings.table = in.table;
    settings.interleaved = in.interleaved;
    std::vector<int32_t> position;
    for (int64_t i = 0; i < in.turn.numel(); ++i) position.push_back(std::max(in.turn.data<int32_t>()[i], 0));
    settings.position = Tensor::from(position, {rows, in.turn.numel() / rows});
    rotated = rotary(t, reshape(t, rotated, {rows, in.turn.numel() / rows, 1, size}), settings);
  }
  rotated = reshape(t, rotated, {rows, queries, heads, chosen, 1, size});
  const Variable logits = scale(t, sum(t, multiply(t, rotated, lines_of(in.keys)), -1), in.scale);
  const int64_t all = chosen * length;
  const Shape flat{rows, queries, heads, all};
  const auto lse_of = [&](const Tensor& mask) {
    return permute(t, log_sum_exp(t, reshape(t, logits, flat), mask), {0, 2, 1});
  };
  const Tensor of_regular = Tensor::from(regular, keys);
  const Tensor of_marks = Tensor::from(marks, flat);
  Variable weights, lse;
  if (in.landmarks) {
    const Variable shares = sum(t, reshape(t, softmax(t, reshape(t, logits, flat), of_marks), keys), -1, true);
    weights = multiply(t, softmax(t, logits, of_regular), shares);
    lse = lse_of(of_marks);
  } else {
    weights = softmax(t, reshape(t, logits, flat), of_regular.reshape(flat));
    lse = lse_of(of_regular.reshape(flat));
  }
  const int64_t value_size = in.values.dim(3);
  const Variable values = reshape(t, lines_of(in.values), {rows, queries, heads, all, value_size});
  const Variable out = sum(t, multiply(t, reshape(t, weights, {rows, queries, heads, all, 1}), values), 3);
  return {out, lse};
}

void add_stored(std::vector<OpCase>& cases, const StoredForm& f) {
  RandomTensors random(static_cast<uint32_t>(cases.size()));
  const Shape choice{f.rows, f.queries, f.heads, f.chosen};
  ops::StoredAttentionInputs in;
  in.scale = 0.7;
  in.landmarks = f.landmarks;
  in.interleaved = f.interleaved;
  constexpr int64_t kTurns = 5;
  std::vector<Tensor> inputs{random.normal({f.rows, f.queries, f.heads, f.size}, f.spread),
                             random.normal({f.slots, f.length, f.kv_heads, f.size}, f.spread),
                             random.normal({f.slots, f.length, f.kv_heads, f.value_size}),
                             random.integers(choice, -1, f.slots), random.integers(choice, 0, kTurns)};
  const auto settings = [=](const Inputs& x) {
    ops::StoredAttentionInputs with = in;
    with.keys = x[1].value();
    with.values = x[2].value();
    if (f.rounded) with.keys = recast(with.keys, DType::bf16), with.values = recast(with.values, DType::bf16);
    with.slot = x[3].value();
    with.turn = x[4].value();
    if (f.pairs > 0) {
      with.table = wide_beside(x[0].value(), {kTurns, 2, f.pairs});
      ops::rotary_table(with.table, rotary_frequencies(20, f.pairs, with.table.device()), 0, 3);
    }
    return with;
  };
  OpCase made = function_case("stored_attention", f.name, inputs, OpCase::Function([=](Tape& t, const Inputs& x) {
                                return both(t, stored_attention(t, x[0], settings(x)));
                              }));
  made.composition = [=](Tape& t, const Inputs& x) { return both(t, composed_stored_attention(t, x[0], settings(x))); };
  made.constants = {1, 2};
  made.sum_length = f.chosen * f.length;
  made.amplification = 8;
  made.roundings = 24;
  cases.push_back(made);
}

}  // namespace

void add_stored_cases(std::vector<OpCase>& cases) {
  for (const StoredForm& form : {
           StoredForm{.name = "small"},
           StoredForm{.name = "plain", .landmarks = false},
           StoredForm{.name = "not_rotated", .chosen = 3, .pairs = 0},
           StoredForm{.name = "interleaved", .size = 7, .interleaved = true},
           StoredForm{
               .name = "grouped", .rows = 3, .queries = 9, .heads = 4, .kv_heads = 2, .length = 51, .landmarks = false},
           StoredForm{.name = "long", .rows = 1, .queries = 2, .heads = 1, .length = 71},
           StoredForm{.name = "none", .chosen = 0},
           StoredForm{.name = "bf16", .rounded = true},
       }) {
    add_stored(cases, form);
  }
}

// Several queries and heads in whole chunks of 8 features: tensor cores in bf16, 64 entries of a list at a time.
void add_stored_block_cases(std::vector<OpCase>& cases) {
  for (const StoredForm& form : {
           StoredForm{.name = "chunks",
          .queries = 21,
          .heads = 4,
          .kv_heads = 2,
          .size = 16,
          .value_size = 24,
          .length = 11,
          .chosen = 3,
          .pairs = 8,
          .spread = 0.5},
           StoredForm{.name = "chunks_plain",
           .queries = 21,
           .size = 24,
           .value_size = 8,
           .length = 64,
           .pairs = 5,
           .landmarks = false,
           .interleaved = true,
           .spread = 0.5},
           StoredForm{.name = "chunks_not_shared",
           .rows = 1,
           .queries = 41,
           .size = 8,
           .value_size = 8,
           .slots = 90,
           .pairs = 3,
           .spread = 0.5},
           StoredForm{.name = "chunks_two", .queries = 2, .heads = 1, .size = 8, .value_size = 8, .pairs = 0},
           StoredForm{.name = "chunks_long",
           .rows = 1,
           .queries = 30,
           .size = 16,
           .value_size = 16,
           .length = 133,
           .pairs = 4,
           .spread = 0.5},
           // The landmark has a tile to itself.
           StoredForm{.name = "chunks_landmark_behind",
           .rows = 1,
           .queries = 30,
           .size = 8,
           .value_size = 8,
           .length = 65,
           .pairs = 4,
           .spread = 0.5},
           StoredForm{.name = "chunks_long_plain",
           .rows = 1,
           .queries = 30,
           .size = 8,
           .value_size = 8,
           .length = 70,
           .landmarks = false,
           .spread = 0.5},
           StoredForm{.name = "chunks_widest",
           .rows = 1,
           .queries = 20,
           .size = 128,
           .value_size = 128,
           .length = 9,
           .pairs = 64,
           .spread = 0.1},
           StoredForm{.name = "chunks_wide", .rows = 1, .size = 16, .value_size = 136, .length = 9},
       }) {
    add_stored(cases, form);
  }
}

}  // namespace quire::test
