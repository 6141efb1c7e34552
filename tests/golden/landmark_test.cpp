// Golden landmark, kinds train, cmt and stream: grouped softmax of a segment, the context-miss token, inserted tokens.
#include <gtest/gtest.h>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/blocks.h"
#include "autograd/functions/rotary.h"
#include "data/batches/inserter.h"
#include "layers/mixers/key_blocks.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/rotary_angles.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

using Leaves = std::map<std::string, Variable>;

Variable rotated(Tape& tape, const GoldenCase& golden, const Variable& x) {
  if (golden.text("rope") == "none") {
    golden.unused({"rope_base"});
    return x;
  }
  ops::RotaryInputs settings;
  settings.table = Tensor::empty({x.dim(1), 2, x.dim(3) / 2}, x.value().dtype(), test_device());
  ops::rotary_table(settings.table, rotary_frequencies(golden.real("rope_base"), x.dim(3) / 2, test_device()), 0, 1);
  settings.interleaved = golden.text("rope") == "interleaved";
  return rotary(tape, x, settings);
}

// Blocks end behind landmarks, wherever these stand. Controlled landmarks are closed, or the others.
ops::BlockAttentionInputs blocks_of(const GoldenCase& golden, bool of_controlled) {
  golden.unused({"block_size"});
  const Tensor marks = golden.get("in/is_landmark");
  const std::vector<int32_t> is_landmark = marks.to_vector<int32_t>();
  std::vector<int32_t> is_controlled(is_landmark.size(), 0);
  if (golden.has("in/controlled")) is_controlled = golden.get("in/controlled").to_vector<int32_t>();
  std::vector<int32_t> block;
  std::vector<uint8_t> landmark;
  for (size_t i = 0; i < is_landmark.size(); ++i) {
    const bool first = i % static_cast<size_t>(marks.dim(1)) == 0;
    block.push_back(first ? 0 : block.back() + is_landmark[i - 1]);
    landmark.push_back(is_landmark[i] == 0 ? 0 : ((is_controlled[i] != 0) == of_controlled ? 1 : 2));
  }
  ops::BlockAttentionInputs in;
  in.block = Tensor::from(block, marks.shape(), test_device());
  in.first = Tensor::zeros(marks.shape(), DType::i32, test_device());
  in.landmark = Tensor::from(landmark, marks.shape(), test_device());
  in.scale = golden.real("scale");
  in.own_block = !of_controlled;
  return in;
}

// One-hot in the key's position: what is mixed are the probabilities, [R, T, H, T].
Variable one_hot(const Variable& v) {
  const int64_t keys = v.dim(1), heads = v.dim(2);
  std::vector<double> values(static_cast<size_t>(v.dim(0) * keys * heads * keys), 0);
  for (int64_t line = 0; line < v.dim(0) * keys * heads; ++line) {
    values[static_cast<size_t>(line * keys + line / heads % keys)] = 1;
  }
  const Tensor made = Tensor::from(values, {v.dim(0), keys, heads, keys}).to(test_device());
  Tape tape(false);
  return convert(tape, Variable::constant(made), v.value().dtype());
}

void expect_probabilities(GoldenCase& golden, const Variable& mixed) {
  Tape tape(false);
  const Variable constant = Variable::constant(mixed.value());
  golden.expect("out/prob", permute(tape, constant, {0, 2, 1, 3}).value());
  golden.expect("out/row_sum", permute(tape, sum(tape, constant, -1), {0, 2, 1}).value());
}

void check(GoldenCase& golden, const std::function<Variable(Tape&, const Leaves&, const Variable& values)>& mix) {
  const Leaves leaves = golden.leaves();
  Tape tape;
  const Variable out = mix(tape, leaves, leaves.at("v"));
  golden.expect("out/o", out.value());
  expect_probabilities(golden, mix(tape, leaves, one_hot(leaves.at("v"))));
  tape.backward({{weighted_sum(tape, out, golden.get("grad_out/o")), 1.0}});
  golden.expect_gradients(leaves);
}

TEST(GoldenLandmark, Training) {
  GoldenFile(golden_folder(), "landmark").for_each_case("train", [](GoldenCase& golden) {
    ops::BlockAttentionInputs in = blocks_of(golden, false);
    in.empty_blocks_count = golden.flag("degenerate");
    check(golden, [&](Tape& tape, const Leaves& leaves, const Variable& values) {
      const Variable q = rotated(tape, golden, leaves.at("q"));
      return block_attention(tape, q, rotated(tape, golden, leaves.at("k")), values, in).out;
    });
  });
}

TEST(GoldenLandmark, ContextMissToken) {
  GoldenFile(golden_folder(), "landmark").for_each_case("cmt", [](GoldenCase& golden) {
    EXPECT_EQ(golden.text("rope"), "none");
    Tensor shares;
    check(golden, [&](Tape& tape, const Leaves& leaves, const Variable& values) {
      const Variable& q = leaves.at("q");
      const Variable& k = leaves.at("k");
      const BlockAttention free = block_attention(tape, q, k, values, blocks_of(golden, false));
      const BlockAttention controlled = block_attention(tape, q, k, values, blocks_of(golden, true));
      const Variable products = sum(tape, multiply(tape, q, leaves.at("cmt_k")), -1, true);
      const ContextMiss miss = context_miss(tape, free, scale(tape, products, golden.real("scale")));
      shares = miss.share.value();
      return add(tape, multiply(tape, free.out, miss.kept), multiply(tape, controlled.out, miss.share));
    });
    Tape tape(false);
    const Variable by_head = permute(tape, Variable::constant(shares), {0, 2, 1, 3});
    golden.expect("out/cmt_prob", by_head.value().reshape({by_head.dim(0), by_head.dim(1), by_head.dim(2)}));
  });
}

// The corpus is one text there; windows of it begin anywhere.
void check_stream(GoldenCase& golden) {
  const auto landmark = static_cast<int32_t>(golden.number("landmark_id"));
  const auto ignored = static_cast<int32_t>(golden.number("ignore_index"));
  const auto end_of_text = static_cast<int32_t>(golden.number("eot_id"));
  const int64_t length = golden.number("seg_len");
  const Insertion insertion{.period = golden.number("block_size"), .ids = 1};
  const Inserter inserter(insertion, landmark);
  const std::vector<int32_t> tokens = golden.get("in/tokens").to_vector<int32_t>();
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<int32_t> stream;
  for (int64_t p = 0; p < insertion.positions(count); ++p) {
    stream.push_back(insertion.is_inserted(p) ? landmark : tokens[static_cast<size_t>(insertion.tokens_before(p))]);
  }
  // The file also has one behind a last block that is full, where nothing reads it.
  if (insertion.is_inserted(insertion.positions(count))) stream.push_back(landmark);
  golden.expect("out/stream", Tensor::from(stream, {static_cast<int64_t>(stream.size())}));

  const std::vector<int32_t> starts = golden.get("in/window_start").to_vector<int32_t>();
  const std::vector<int32_t> jumps = golden.get("in/jump").to_vector<int32_t>();
  const auto windows = static_cast<int64_t>(starts.size());
  Batch batch = Batch::empty(windows, length, 0, {.inserted = true});
  std::vector<int32_t> positions;
  for (int64_t w = 0; w < windows; ++w) {
    const int64_t start = starts[static_cast<size_t>(w)];
    const int64_t first = insertion.tokens_before(start);
    const int64_t taken = inserter.tokens(start, length);
    for (int64_t i = 0; i < taken; ++i) {
      const auto cell = static_cast<size_t>(batch.at(w, i));
      batch.tokens[cell] = tokens[static_cast<size_t>(first + i)];
      batch.targets[cell] = tokens[static_cast<size_t>(first + i + 1)];
      batch.loss_mask[cell] = 1;
    }
    inserter.spread(batch, batch.at(w, 0), start, length);
    int64_t position = 0;
    for (int64_t t = 0; t < length; ++t) {
      positions.push_back(static_cast<int32_t>(position));
      const auto cell = static_cast<size_t>(batch.at(w, t));
      position = next_position(position, batch.inserted[cell] != 0 ? jumps[cell] : 1);
    }
  }
  for (size_t cell = 0; cell < batch.tokens.size(); ++cell) {
    // Documents of quire end by themselves; the published code masks what follows the mark between them.
    const bool counts = batch.loss_mask[cell] != 0 && batch.tokens[cell] != end_of_text;
    if (!counts) batch.targets[cell] = ignored;
  }
  golden.expect("out/x", Tensor::from(batch.tokens, {windows, length}));
  golden.expect("out/y", Tensor::from(batch.targets, {windows, length}));
  golden.expect("out/pos_jump", Tensor::from(positions, {windows, length}));
}

TEST(GoldenLandmark, Stream) {
  GoldenFile(golden_folder(), "landmark").for_each_case("stream", check_stream);
}

// A file of the same form, by the definition, for texts that end anywhere in a block.
TEST(GoldenLandmark, StreamsOfAnyLength) {
  struct Text {
    int64_t tokens, block, window;
  };
  const TemporaryDirectory folder;
  constexpr int32_t kLandmark = 900, kEnd = 901, kIgnored = -1;
  Hdf5Writer writer(folder / "landmark.h5");
  writer.set_attribute("/", "mechanism", std::string("landmark"));
  writer.set_attribute("/", "schema_version", kGoldenSchema);
  for (const auto& [tokens, block, window] : {Text{95, 7, 20}, {95, 5, 13}, {6, 7, 3}, {24, 1, 9}, {25, 12, 25}}) {
    const std::string name = "case_" + std::to_string(tokens) + "_" + std::to_string(block);
    std::vector<int32_t> text, stream;
    for (int32_t i = 0; i < tokens; ++i) {
      text.push_back(i % 11 == 10 ? kEnd : i);
      stream.push_back(text.back());
      if ((i + 1) % block == 0) stream.push_back(kLandmark);
    }
    const auto length = static_cast<int64_t>(stream.size());
    std::vector<int32_t> starts, x, y, jump, position;
    // The last one ends with the token before the last one of the text.
    const int64_t last = length - window - (stream.back() == kLandmark ? 2 : 1);
    for (const int64_t start : {int64_t{0}, last / 2, last}) {
      starts.push_back(static_cast<int32_t>(start));
      int32_t at = 0;
      for (int64_t t = start; t < start + window; ++t) {
        const int32_t token = stream[static_cast<size_t>(t)];
        const int32_t next = stream[static_cast<size_t>(t) + 1];
        x.push_back(token);
        const bool counts = token != kLandmark && token != kEnd;
        y.push_back(!counts ? kIgnored : next == kLandmark ? stream[static_cast<size_t>(t) + 2] : next);
        jump.push_back(static_cast<int32_t>(1 + t % 4));
        position.push_back(at);
        at += token == kLandmark ? jump.back() : 1;
      }
    }
    for (const auto& [attribute, value] : {std::pair<const char*, int64_t>{"block_size", block},
                                           {"eot_id", kEnd},
                                           {"ignore_index", kIgnored},
                                           {"landmark_id", kLandmark},
                                           {"seg_len", window},
                                           {"rtol", 0}}) {
      writer.set_attribute(name, attribute, value);
    }
    writer.set_attribute(name, "kind", std::string("stream"));
    writer.put(name + "/in/tokens", Tensor::from(text, {tokens}));
    writer.put(name + "/in/window_start", Tensor::from(starts, {3}));
    writer.put(name + "/in/jump", Tensor::from(jump, {3, window}));
    writer.put(name + "/out/stream", Tensor::from(stream, {length}));
    writer.put(name + "/out/x", Tensor::from(x, {3, window}));
    writer.put(name + "/out/y", Tensor::from(y, {3, window}));
    writer.put(name + "/out/pos_jump", Tensor::from(position, {3, window}));
  }
  writer.close();
  GoldenFile(folder.path(), "landmark").for_each_case("stream", check_stream);
}

}  // namespace
}  // namespace quire::test
