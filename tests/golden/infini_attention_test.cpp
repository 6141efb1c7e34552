// Golden infini_attention: local attention and the compressive memory, segment by segment.
#include <gtest/gtest.h>

#include "autograd/functions/attention.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rotary.h"
#include "layers/mixers/infini_memory.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/rotary_angles.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class Infini {
 public:
  explicit Infini(GoldenCase& golden)
      : golden_(golden),
        leaves_(golden.leaves()),
        rows_(golden.number("batch")),
        tokens_(golden.number("seq_len")),
        length_(golden.number("seg_len")),
        segments_(golden.number("n_seg")),
        heads_(golden.number("n_head")),
        key_heads_(golden.number("n_kv_head")),
        size_(golden.number("d_k")),
        value_size_(golden.number("d_v")) {}

  void run(bool is_layer) {
    Tape tape;
    const auto heads_of = [&](const char* input, const char* weight, int64_t heads, int64_t size) {
      if (!is_layer) return leaves_.at(input);
      return reshape(tape, linear(tape, leaves_.at("x"), leaves_.at(weight)), {rows_, tokens_, heads, size});
    };
    const Variable q = heads_of("q", "w_q", heads_, size_), k = heads_of("k", "w_k", key_heads_, size_),
                   v = heads_of("v", "w_v", key_heads_, value_size_);
    if (is_layer) golden_.unused({"d_model"});
    const Variable dot = local(tape, q, k, v);
    golden_.expect("out/a_dot", dot.value());

    const InfiniTables tables = infini_tables(pieces(), {rows_, tokens_, heads_, key_heads_}, test_device());
    const InfiniUpdate update = golden_.text("update") == "delta" ? InfiniUpdate::delta : InfiniUpdate::linear;
    InfiniRead read = infini_memory(tape, q, k, v, begin(), tables, update);
    if (!read.out.defined()) {
      read.out = Variable::constant(Tensor::zeros(dot.shape(), golden_.dtype(), test_device()));
    }
    golden_.expect("out/a_mem", read.out.value());

    const Variable gate = reshape(tape, sigmoid(tape, leaves_.at("beta")), {1, 1, heads_, 1});
    Variable out = add(tape, dot, multiply(tape, gate, subtract(tape, read.out, dot)));
    if (golden_.text("empty_gate") == "local") out = select(tape, reads_, out, dot);
    golden_.expect("out/o", out.value());
    const char* name = "o";
    if (is_layer) {
      out = linear(tape, reshape(tape, out, {rows_, tokens_, heads_ * value_size_}), leaves_.at("w_o"));
      golden_.expect("out/y", out.value());
      name = "y";
    }
    Variable matrices = stacked(tape, read.after, &InfiniState::matrix);
    Variable normalisers = stacked(tape, read.after, &InfiniState::normaliser);
    normalisers = reshape(tape, normalisers, {segments_, rows_, key_heads_, size_});
    golden_.expect("out/mem", matrices.value());
    golden_.expect("out/z", normalisers.value());
    const auto loss = [&](const std::string& of, const Variable& x) {
      return Tape::Seed{weighted_sum(tape, x, golden_.get("grad_out/" + of)), 1.0};
    };
    tape.backward({loss(name, out), loss("mem", matrices), loss("z", normalisers)});
    golden_.expect_gradients(leaves_);
  }

 private:
  Variable local(Tape& tape, const Variable& q, const Variable& k, const Variable& v) {
    AttentionVariables x;
    x.q = q;
    x.k = k;
    x.v = v;
    if (golden_.text("rope") == "none") {
      golden_.unused({"rope_base"});
    } else {
      ops::RotaryInputs rotation;
      rotation.table = Tensor::empty({tokens_, 2, size_ / 2}, golden_.dtype(), test_device());
      ops::rotary_table(rotation.table, rotary_frequencies(golden_.real("rope_base"), size_ / 2, test_device()), 0, 1);
      rotation.interleaved = golden_.text("rope") == "interleaved";
      x.q = rotary(tape, q, rotation);
      x.k = rotary(tape, k, rotation);
    }
    std::vector<int32_t> first;
    for (int64_t cell = 0; cell < rows_ * tokens_; ++cell) {
      const int64_t t = cell % tokens_;
      first.push_back(static_cast<int32_t>(t - t % length_));
    }
    ops::AttentionInputs settings;
    settings.first_visible = Tensor::from(first, {rows_, tokens_}, test_device());
    settings.scale = golden_.real("scale");
    return attention(tape, x, settings);
  }

  InfiniState begin() const {
    if (golden_.flag("state_in")) {
      return {Variable::constant(golden_.get("in/state_mem")),
              Variable::constant(golden_.get("in/state_z").reshape({rows_, key_heads_, size_, 1}))};
    }
    const auto zeros = [&](int64_t columns) {
      return Variable::constant(Tensor::zeros({rows_, key_heads_, size_, columns}, golden_.dtype(), test_device()));
    };
    return {zeros(value_size_), zeros(1)};
  }

  // Also says which tokens read, and compares the numbers of tokens in memory.
  std::vector<InfiniPiece> pieces() {
    std::vector<int32_t> count(static_cast<size_t>(rows_), 0);
    if (golden_.flag("state_in")) count = golden_.get("in/state_count").to_vector<int32_t>();
    const std::vector<int32_t> reset = golden_.get("in/reset").to_vector<int32_t>();
    const bool cut = !golden_.flag("bptt");
    std::vector<int32_t> counts(static_cast<size_t>(segments_ * rows_));
    std::vector<uint8_t> reads(static_cast<size_t>(rows_ * tokens_), 0);
    std::vector<InfiniPiece> pieces;
    for (int64_t row = 0; row < rows_; ++row) {
      int32_t& written = count[static_cast<size_t>(row)];
      for (int64_t s = 0; s < segments_; ++s) {
        const bool begins = reset[static_cast<size_t>(s * rows_ + row)] != 0;
        const int64_t first = s * length_, tokens = std::min(length_, tokens_ - first);
        if (begins) written = 0;
        if (written > 0) std::fill_n(reads.begin() + row * tokens_ + first, tokens, 1);
        pieces.push_back({row, first, written > 0 ? tokens : 0, first, tokens, begins, cut});
        written += static_cast<int32_t>(tokens);
        counts[static_cast<size_t>(s * rows_ + row)] = written;
      }
    }
    golden_.expect("out/count", Tensor::from(counts, {segments_, rows_}));
    reads_ = Tensor::from(reads, {rows_, tokens_, 1, 1}, test_device());
    return pieces;
  }

  static Variable stacked(Tape& tape, const std::vector<InfiniState>& after, Variable InfiniState::*which) {
    std::vector<Variable> parts;
    for (const InfiniState& state : after) {
      const Variable& x = state.*which;
      parts.push_back(reshape(tape, x, {1, x.dim(0), x.dim(1), x.dim(2), x.dim(3)}));
    }
    return concatenate(tape, parts, 0);
  }

  GoldenCase& golden_;
  std::map<std::string, Variable> leaves_;
  int64_t rows_, tokens_, length_, segments_, heads_, key_heads_, size_, value_size_;
  Tensor reads_;
};

TEST(GoldenInfini, Attention) {
  GoldenFile(golden_folder(), "infini_attention").for_each_case("attn", [](GoldenCase& golden) {
    Infini(golden).run(false);
  });
}

TEST(GoldenInfini, Layer) {
  GoldenFile(golden_folder(), "infini_attention").for_each_case("layer", [](GoldenCase& golden) {
    Infini(golden).run(true);
  });
}

}  // namespace
}  // namespace quire::test
