// Compares the functions of listed attention with a composition that gathers the keys of every query and has whole
// matrices.
#include <algorithm>
#include <limits>
#include <utility>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/listed_attention.h"
#include "autograd/functions/pointwise.h"
#include "autograd/functions/rotary.h"
#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"
#include "core/random.h"
#include "kernels/knn.h"
#include "kernels/listed_sizes.h"
#include "tests/kernels/listed_forms.h"
#include "tests/support/compare.h"
#include "tests/support/composed_attention.h"
#include "tests/support/rotary_angles.h"

namespace quire::test {

namespace {

constexpr int64_t kTurns = 5;

int64_t list_heads(const ListedForm& f) {
  if (f.of == ListOf::key_head) return f.q.kv_heads;
  return f.of == ListOf::all_heads || (f.of == ListOf::usual && f.has_lists()) ? 1 : f.q.heads;
}
int64_t own_keys(const ListedForm& f) {
  return f.blocks.own * f.blocks.length + 2;
}

// Blocks [R, G, 1 or Hk or H, K], none twice in a list, with -1 at random. The second list of row 0 is empty.
Tensor blocks_of(const ListedForm& f, RandomTensors& random) {
  const int64_t lists = f.has_lists() ? f.lists.count : f.q.queries, heads = list_heads(f);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < f.q.rows * lists * heads; ++i) {
    const int64_t row = i / heads / lists;
    std::vector<int32_t> order;
    for (int64_t block = 0; block < f.blocks.count; ++block) {
      if (f.shared || block % f.q.rows == row) order.push_back(static_cast<int32_t>(block));
    }
    for (int64_t b = 0; b < f.blocks.own; ++b) order.push_back(static_cast<int32_t>(-2 - row * f.blocks.own - b));
    const int64_t all = std::ssize(order);
    order.resize(static_cast<size_t>(std::max(all, f.blocks.chosen)), -1);
    for (int64_t n = 0; n < f.blocks.chosen; ++n) {
      if (n < all) std::swap(order[static_cast<size_t>(n)], order[static_cast<size_t>(n + random.below(all - n))]);
      chosen.push_back(i / heads == 1 || random.below(6) == 0 ? -1 : order[static_cast<size_t>(n)]);
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
    spans.push_back(static_cast<int32_t>(row * own_keys(f) + 1 + b * f.blocks.length));
    spans.push_back(static_cast<int32_t>(f.blocks.length - (b == f.blocks.own - 1 ? 1 : 0)));
  }
  return Tensor::from(spans, {f.q.rows * f.blocks.own, 2});
}

// Keys of the pass are rotated already.
Tensor rotations_of(const Tensor& blocks, RandomTensors& random) {
  const Tensor rotations = random.integers(blocks.shape(), 0, kTurns);
  for (int64_t i = 0; i < blocks.numel(); ++i) {
    if (blocks.data<int32_t>()[i] < 0) rotations.data<int32_t>()[i] = 0;
  }
  return rotations;
}

// Puts NaN into keys or values that no block has, and into stored blocks that no list has. Without `listed` they are
// those of the pass.
void spoil_unread(const ListedForm& f, const Tensor& lines, const Tensor& listed) {
  if (!lines.defined()) return;
  const std::vector<int32_t> chosen = listed.defined() ? listed.to_vector<int32_t>() : std::vector<int32_t>();
  for (int64_t i = 0; i < lines.numel(); ++i) {
    const int64_t line = i / lines.dim(3) / lines.dim(2), block = line / lines.dim(1), key = line % lines.dim(1);
    const bool read = listed.defined()
                          ? key < f.blocks.length && std::find(chosen.begin(), chosen.end(), block) != chosen.end()
                          : key > 0 && key < f.blocks.own * f.blocks.length;
    if (!read) values(lines)[i] = std::numeric_limits<double>::quiet_NaN();
  }
}

// Sets keys or values as a log stores them; on a GPU those with scales as fetch_entries hands them over.
void store(const ListedForm& f, const Tensor& given, Tensor& to, Tensor& scale) {
  to = f.has_own_type() && !ops::has_scale(f.stored) ? recast(given, f.stored) : given;
  if (!ops::has_scale(f.stored)) return;
  const Tensor small = Tensor::empty(given.shape(), f.stored, given.device());
  scale = Tensor::empty({given.dim(0), given.dim(1), given.dim(2)}, DType::bf16, given.device());
  ops::quantize_vectors(small, scale, given);
  to = given.device() == kCpu ? small : Tensor::empty_like(given);
  if (to.dtype() != f.stored) ops::dequantize_vectors(to, small, std::exchange(scale, Tensor()));
}

// Returns stored keys or values in f64.
Tensor numbers_of(const Tensor& stored, const Tensor& scale) {
  if (!scale.defined()) return recast(stored, DType::f64);
  const Tensor numbers = Tensor::empty(stored.shape(), DType::f64);
  ops::dequantize_vectors(numbers, stored, scale);
  return numbers;
}

// From q, keys, values, blocks, list, rotation, weight, own keys, own values, own blocks.
ops::ListedAttentionInputs settings_of(const ListedForm& f, const Tensors& x) {
  ops::ListedAttentionInputs in;
  in.q = x[0];
  store(f, x[1], in.keys, in.key_scale);
  store(f, x[2], in.values, in.value_scale);
  in.blocks = x[3], in.list = x[4], in.weight = x[6];
  in.own_keys = x[7], in.own_values = x[8], in.own_blocks = x[9];
  in.length = f.blocks.length;
  in.scale = 0.7;
  in.landmarks = f.step == ListedStep::landmarks;
  in.softmax_one = f.step == ListedStep::weights_one;
  in.interleaved = f.interleaved;
  if (f.pairs == 0) return in;
  in.rotation = x[5];
  in.table = wide_beside(x[0], {kTurns, 2, f.pairs});
  ops::rotary_table(in.table, rotary_frequencies(20, f.pairs, in.table.device()), 0, 3);
  return in;
}

ops::ListedAttentionInputs settings_of(const ListedForm& f, const Inputs& x) {
  Tensors tensors;
  for (const Variable& variable : x) tensors.push_back(variable.value());
  return settings_of(f, tensors);
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

// The keys of every entry, as indices into stored keys with those of the pass behind them, and which of them are there
// and are no landmarks, or are landmarks.
struct ComposedLines {
  std::vector<int32_t> index;
  std::vector<uint8_t> regular, marks, with_one;  // with_one: regular ones, and one more for each entry

  ComposedLines(const ops::ListedAttentionInputs& in, const std::vector<int32_t>& entry) {
    const ListedSizes s(in);
    for (size_t i = 0; i < entry.size(); ++i) {
      const int64_t kv_head = static_cast<int64_t>(i) / s.chosen % s.heads / s.group();
      const int64_t block = entry[i] < 0 ? -1 : in.blocks.data<int32_t>()[entry[i]];
      const int32_t* const span = block < -1 ? in.own_blocks.data<int32_t>() + 2 * (-2 - block) : nullptr;
      const int64_t first = span == nullptr ? block * s.stored_length : s.blocks * s.stored_length + span[0];
      const int64_t keys = block == -1 ? 0 : span == nullptr ? s.length : span[1];
      for (int64_t j = 0; j < s.length; ++j) {
        const bool is_mark = in.landmarks && j == keys - 1, there = j < keys;
        index.push_back(there ? static_cast<int32_t>((first + j) * s.kv_heads + kv_head) : -1);
        regular.push_back(there && !is_mark ? 1 : 0);
        marks.push_back(there && is_mark ? 1 : 0);
        with_one.push_back(regular.back());
      }
      with_one.push_back(1);
    }
  }
};

Inputs composed(Tape& t, const ListedForm& f, const Inputs& x) {
  const ops::ListedAttentionInputs in = settings_of(f, x);
  const ListedSizes s(in);
  const Shape entries{s.rows, s.queries, s.heads, s.chosen};
  const Shape keys{s.rows, s.queries, s.heads, s.chosen, s.length};
  const Shape flat{s.rows, s.queries, s.heads, s.chosen * s.length};
  const std::vector<int32_t> entry = entries_of(in, entries);
  const ComposedLines lines(in, entry);
  const auto lines_of = [&](const Variable& given, const Tensor& stored, const Tensor& scale, const Variable& own) {
    const auto table = [&](const Variable& of) { return reshape(t, of, {of.shape().numel() / of.dim(3), of.dim(3)}); };
    Variable from = table(f.has_own_type() ? Variable::constant(numbers_of(stored, scale)) : given);
    if (own.defined()) from = concatenate(t, std::vector{from, table(own)}, 0);
    return gather_rows(t, from, Tensor::from(lines.index, keys));
  };
  const Variable of_keys = lines_of(x[1], in.keys, in.key_scale, x[7]);
  const Variable logits = scale(t, sum(t, multiply(t, rotated(t, x[0], in, entry, entries), of_keys), -1), in.scale);
  const Variable all = reshape(t, logits, flat);
  const Tensor of_regular = Tensor::from(lines.regular, keys), of_marks = Tensor::from(lines.marks, flat);
  Variable within = softmax(t, logits, of_regular), weights, lse;
  if (in.softmax_one) {
    const Shape with_one{s.rows, s.queries, s.heads, s.chosen, s.length + 1};
    const Variable one = Variable::constant(Tensor::zeros({s.rows, s.queries, s.heads, s.chosen, 1}, DType::f64));
    within = slice(t, softmax(t, concatenate(t, std::vector{logits, one}, 4), Tensor::from(lines.with_one, with_one)),
                   4, 0, s.length);
  }
  const auto lse_of = [&](const Tensor& mask) { return permute(t, log_sum_exp(t, all, mask), {0, 2, 1}); };
  if (f.is_weighted()) {
    Variable shares;
    if (f.width == 0) {
      shares = gather_rows(t, reshape(t, x[6], {x[6].shape().numel(), 1}), Tensor::from(entry, entries));
    } else {
      std::vector<uint8_t> there;
      for (const int32_t e : entry) there.push_back(e < 0 ? 0 : 1);
      const Variable of_queries = permute(t, slice(t, x[6], 3, 0, s.chosen), {0, 2, 1, 3});
      shares = select(t, Tensor::from(there, entries), of_queries, {});
    }
    weights = multiply(t, within, reshape(t, shares, {s.rows, s.queries, s.heads, s.chosen, 1}));
  } else if (in.landmarks) {
    weights = multiply(t, within, sum(t, reshape(t, softmax(t, all, of_marks), keys), -1, true));
    lse = lse_of(of_marks);
  } else {
    weights = softmax(t, all, of_regular.reshape(flat));
    lse = lse_of(of_regular.reshape(flat));
  }
  const Variable values = lines_of(x[2], in.values, in.value_scale, x[8]);
  const Shape by_key{s.rows, s.queries, s.heads, s.chosen * s.length, 1};
  const Shape by_value{s.rows, s.queries, s.heads, s.chosen * s.length, s.value_size};
  const Variable out = sum(t, multiply(t, reshape(t, weights, by_key), reshape(t, values, by_value)), 3);
  return lse.defined() ? both(t, {out, lse}) : Inputs{out};
}

// Adds what is stored in every way, listed in every way, with every last step, beside blocks of the pass and keys that
// are not read.
void add_combinations(std::vector<ListedForm>& forms) {
  using enum ListedStep;
  const std::vector<ListedForm> ways{{.name = "by_head", .of = ListOf::head},
                                     {.name = "by_key_head", .of = ListOf::key_head},
                                     {.name = "by_list", .lists = {3, 2}},
                                     {.name = "by_list_and_head", .lists = {2, 2, 1}, .of = ListOf::head}};
  const std::vector<ListedForm> last{{.name = "softmax", .step = softmax},
                                     {.name = "landmarks"},
                                     {.name = "weights", .step = weights},
                                     {.name = "one", .step = weights_one},
                                     {.name = "query_weights", .step = weights, .width = 4},
                                     {.name = "query_one", .step = weights_one, .width = 4}};
  for (const DType stored : {DType::f64, DType::bf16, DType::i8, DType::f8}) {
    for (size_t n = 0; n < ways.size() * last.size(); ++n) {
      const ListedForm &way = ways[n / last.size()], &step = last[n % last.size()];
      if (step.is_weighted() && step.width == 0 && way.name != "by_list") continue;  // weights of lists for all heads
      ListedForm form{
          .step = step.step, .q = {2, 4, 6, 2}, .blocks = {4, 4, 3, 2, 1}, .lists = way.lists, .of = way.of};
      form.name = (stored == DType::f64 ? "" : std::string(name_of(stored)) + "_") + way.name + "_" + step.name;
      form.width = step.width, form.pairs = 2, form.stored = stored, form.spread = 0.7;
      forms.push_back(form);
    }
  }
}

}  // namespace

OpCase listed_case(const ListedForm& f) {
  RandomTensors random(hash_scope(f.name));
  const Tensor blocks = blocks_of(f, random);
  const Tensor rotations = f.pairs > 0 ? rotations_of(blocks, random) : Tensor();
  const auto vectors = [&](int64_t count, int64_t keys, int64_t size, double mean) {
    return random.normal({count, keys, f.q.kv_heads, size}, 1, mean);
  };
  const int64_t stored = f.blocks.length + f.blocks.unread;
  Tensors inputs(10);
  inputs[0] = random.normal({f.q.rows, f.q.queries, f.q.heads, f.q.size}, f.spread, f.mean);
  inputs[1] = vectors(f.blocks.count, stored, f.q.size, -f.mean);
  inputs[2] = vectors(f.blocks.count, stored, f.q.value_size, 0);
  inputs[3] = blocks, inputs[4] = lists_of(f), inputs[5] = rotations;
  if (f.is_weighted()) {
    inputs[6] = f.width > 0 ? random.normal({f.q.rows, f.q.heads, f.q.queries, f.width})
                            : random.normal({f.q.rows, blocks.dim(1), f.blocks.chosen});
  }
  if (f.blocks.own > 0) {
    inputs[7] = vectors(f.q.rows, own_keys(f), f.q.size, 0);
    inputs[8] = vectors(f.q.rows, own_keys(f), f.q.value_size, 0);
    inputs[9] = spans_of(f);
  }
  for (const size_t n : {1, 2, 7, 8}) spoil_unread(f, inputs[n], n < 7 ? blocks : Tensor());
  OpCase made =
      function_case("listed_attention", f.name, inputs, OpCase::Function([=](Tape& t, const Inputs& x) {
                      const ops::ListedAttentionInputs in = settings_of(f, x);
                      const Variable keys = f.has_own_type() ? Variable() : x[1];
                      const Variable values = f.has_own_type() ? Variable() : x[2];
                      const BlockAttention read = listed_attention(t, x[0], {keys, values, x[7], x[8], x[6]}, in);
                      return f.is_weighted() ? Inputs{read.out} : both(t, read);
                    }));
  made.composition = [=](Tape& t, const Inputs& x) { return composed(t, f, x); };
  made.wide = {6};
  if (f.has_own_type()) made.constants = {1, 2};
  if (f.step == ListedStep::landmarks) made.constants = {1, 2, 7, 8};
  made.sum_length = f.q.rows * f.q.queries * f.blocks.chosen * f.blocks.length;
  made.amplification = f.spread > 1 ? 400 : f.mean > 0 ? 200 : 8;  // of large logits
  made.roundings = 24;
  return made;
}

ops::ListedAttentionInputs listed_call(const ListedForm& f, DType dtype, Device device) {
  return settings_of(f, inputs_of(listed_case(f), dtype, device));
}

Tensors attend_listed(const ops::ListedAttentionInputs& in) {
  const ListedSizes s(in);
  const Shape by_entry{s.rows, s.heads, s.queries, s.chosen}, by_head{s.rows, s.heads, s.queries};
  const bool weighted = in.weight.defined();
  const Tensor out = Tensor::empty({s.rows, s.queries, s.heads, s.value_size}, in.q.dtype(), in.q.device());
  const Tensor lse = Tensor::empty(weighted ? by_entry : by_head, wide_type(in.q.dtype()), in.q.device());
  const Tensor mass = weighted ? Tensor() : Tensor::empty(by_entry, lse.dtype(), lse.device());
  ops::listed_attention(out, lse, mass, in);
  return {out, lse, mass};
}

Tensors listed_gradients(const ops::ListedAttentionInputs& in, const Tensors& outputs,
                         const std::vector<size_t>& asked) {
  Tensors of{in.q, in.keys, in.values, in.weight, in.own_keys, in.own_values}, d(6);
  if (in.landmarks || in.keys.dtype() != in.q.dtype()) of[1] = of[2] = Tensor();
  if (in.landmarks) of[4] = of[5] = Tensor();
  for (const size_t n : asked) d[n] = of[n].defined() ? Tensor::empty_like(of[n]) : Tensor();
  const Tensor& out = outputs[0];
  const Tensor dout = converted(first_seed(out.shape()), out.dtype()).to(out.device());
  ops::listed_attention_backward({d[0], d[1], d[2], d[3], d[4], d[5]}, dout, {}, out, outputs[1], in);
  return d;
}

void add_listed_cases(std::vector<OpCase>& cases) {
  using enum ListedStep;
  constexpr ListOf all = ListOf::key_head;  // of one key head
  const ListedForm::Queries eleven{1, 11}, few{1, 30, 2, 1, 8, 8}, plain{2, 21, 2, 1, 24, 8},
      widest{1, 40, 2, 1, 128, 128}, apart{3, 37, 2, 2, 64, 40}, odd{2, 9, 2, 1, 37, 19};
  const ListedForm::Blocks rows{6, 19, 3};
  std::vector<ListedForm> forms{
      {.name = "small", .pairs = 2},
      {.name = "not_rotated", .blocks = {7, 4, 3}},
      {.name = "interleaved", .q = {2, 3, 2, 1, 7}, .pairs = 2, .interleaved = true},
      {.name = "grouped", .step = softmax, .q = {3, 9, 4, 2}, .blocks = {7, 51}},
      {.name = "long", .q = {1, 2, 1}, .blocks = {7, 71}, .pairs = 2},
      {.name = "no_queries", .step = softmax, .q = {2, 0}, .blocks = {7, 4, 2, 1}},
      {.name = "no_lists", .step = weights, .q = {2, 0}, .lists = {3}},
      {.name = "no_blocks", .step = softmax, .blocks = {0}},
      {.name = "no_weights", .step = weights, .blocks = {0}, .lists = {3}},
      {.name = "no_entries", .blocks = {7, 4, 0}},
      {.name = "own_alone", .step = softmax, .q = {2, 9, 2, 1}, .blocks = {0, 4, 3, 3}},
      {.name = "one_key", .step = weights, .q = {1, 1, 1}, .blocks = {7, 1}, .lists = {1}},
      {.name = "grouped_one", .step = weights_one, .q = {1, 11, 4, 2}, .blocks = {3}, .lists = {3}},
      {.name = "late", .step = weights, .q = {3, 8}, .lists = {2, 3, 3}, .shared = false},
      {.name = "more", .step = weights, .q = eleven, .blocks = {2, 4, 5}, .lists = {3}, .backwards = true},
      {.name = "of_one_query", .step = weights, .q = {2, 5}, .blocks = {7, 1, 1}, .lists = {6, 1}},
      {.name = "tiles", .step = weights, .q = {1, 201, 2, 2, 2, 1}, .blocks = {3, 6}, .lists = {4, 130}},
      {.name = "over_a_tile", .step = weights_one, .q = {1, 7}, .blocks = {3, 70}, .lists = {3, 5}},
      {.name = "wide", .step = weights, .q = {1, 4, 1, 1, 132, 70}, .lists = {2}, .spread = 0.3},
      {.name = "large", .step = weights, .q = eleven, .lists = {3}, .spread = 20},
      {.name = "low_one", .step = weights_one, .q = eleven, .lists = {3}, .spread = 0.5, .mean = 3},
      {.name = "query_tiles", .step = weights, .q = {1, 70, 2, 1, 2}, .blocks = {1, 3, 1, 1}, .of = all, .width = 1},
      {.name = "query_heads", .step = weights, .q = {1, 3, 101, 1, 2}, .blocks = {2, 71}, .of = all, .width = 2},
      // Vectors of more features than a vector register has lanes.
      {.name = "bf16_wide", .step = weights, .q = odd, .width = 2, .stored = DType::bf16, .spread = 0.3},
      {.name = "i8_wide", .step = weights, .q = odd, .width = 2, .stored = DType::i8, .spread = 0.3},
      {.name = "f8_wide", .step = softmax, .q = odd, .pairs = 7, .stored = DType::f8, .spread = 0.3},
  };
  // Several queries and heads in whole chunks of 8 features: tensor cores in bf16, 64 entries of a list at a time.
  std::vector<ListedForm> chunks{
      {.name = "chunks", .q = {2, 21, 4, 2, 16, 24}, .blocks = {7, 11, 3}, .pairs = 8},
      {.name = "chunks_plain", .step = softmax, .q = plain, .blocks = {7, 64}, .pairs = 5, .interleaved = true},
      {.name = "chunks_not_shared", .q = {1, 41, 2, 1, 8, 8}, .blocks = {90}, .pairs = 3},
      {.name = "chunks_two", .q = {2, 2, 1, 1, 8, 8}},
      {.name = "chunks_long", .q = {1, 30, 2, 1, 16, 16}, .blocks = {7, 133}, .pairs = 4},
      {.name = "chunks_landmark_behind", .q = few, .blocks = {7, 65}, .pairs = 4},  // it has a tile to itself
      {.name = "chunks_long_plain", .step = softmax, .q = few, .blocks = {7, 70}, .pairs = 2},
      {.name = "chunks_wide", .q = {1, 3, 2, 1, 16, 136}, .blocks = {7, 9}},
      {.name = "chunks_widest", .q = {1, 20, 2, 1, 128, 128}, .blocks = {7, 9}, .pairs = 64, .spread = 0.1},
      {.name = "lists", .step = weights, .q = {2, 71, 4, 2, 16, 24}, .blocks = {3, 64}, .lists = {2, 66, 3}},
      {.name = "lists_long", .step = weights_one, .q = {1, 20, 2, 1, 24, 8}, .blocks = {3, 150, 3}, .lists = {3, 9}},
      {.name = "lists_of_tiles", .step = weights, .q = {1, 205, 1, 1, 8, 8}, .blocks = {3, 5}, .lists = {2, 170}},
      {.name = "apart", .step = weights, .q = apart, .blocks = rows, .lists = {2, 21}, .shared = false, .spread = 0.2},
      {.name = "lists_widest", .step = weights, .q = widest, .blocks = {2, 66}, .lists = {1, 38}, .spread = 0.1},
      {.name = "lists_large", .step = weights, .q = few, .lists = {8}, .spread = 20},
      {.name = "lists_low_one", .step = weights_one, .q = few, .lists = {8}, .mean = 2},
  };
  for (ListedForm& form : chunks) form.spread = form.spread == 1 ? 0.5 : form.spread;
  forms.insert(forms.end(), chunks.begin(), chunks.end());
  add_combinations(forms);
  for (const ListedForm& each : forms) cases.push_back(listed_case(each));
}

}  // namespace quire::test
