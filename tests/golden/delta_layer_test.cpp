// Golden gated_delta and kda: the short convolution, the decay and whole layers.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/functions/convolution.h"
#include "autograd/functions/delta.h"
#include "layers/mixers/delta_mix.h"
#include "tests/golden/golden_file.h"
#include "tests/support/random_tensor.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

// The segments of rows [B, T] with resets.
struct Rows {
  int64_t rows, length;
  std::vector<int32_t> segments;     // first cell and number of cells of each
  std::vector<int32_t> row_of;       // of the carried values that a segment begins with; -1: it begins a document
  std::vector<int32_t> last_of_row;  // the segment that ends each row

  explicit Rows(const Tensor& reset) : rows(reset.dim(0)), length(reset.dim(1)) {
    const std::vector<int32_t> begins = reset.to_vector<int32_t>();
    for (int64_t cell = 0; cell < rows * length; ++cell) {
      const bool starts = begins[static_cast<size_t>(cell)] != 0;
      if (starts || cell % length == 0) {
        segments.insert(segments.end(), {static_cast<int32_t>(cell), 0});
        row_of.push_back(starts ? -1 : static_cast<int32_t>(cell / length));
      }
      ++segments.back();
      if (cell % length == length - 1) last_of_row.push_back(static_cast<int32_t>(row_of.size()) - 1);
    }
  }
  int64_t count() const { return static_cast<int64_t>(row_of.size()); }
  Tensor table() const { return Tensor::from(segments, {count(), 2}, test_device()); }

  // carried [B, ..] -> [S, ..]; undefined stands for zeros of `shape`, that of one row.
  Tensor begin(const Tensor& carried, const Shape& shape, DType dtype) const {
    const int64_t size = shape.numel();
    std::vector<double> values(static_cast<size_t>(count() * size), 0);
    if (carried.defined()) {
      const std::vector<double> from = converted(carried, DType::f64).to_vector<double>();
      for (size_t s = 0; s < row_of.size(); ++s) {
        if (row_of[s] < 0) continue;
        std::copy_n(from.begin() + row_of[s] * size, size, values.begin() + static_cast<int64_t>(s) * size);
      }
    }
    return converted(Tensor::from(values, {count(), size}, test_device()), dtype);
  }
  // values [S, ..] -> those of the last segment of each row.
  Variable ends(Tape& tape, const Variable& values) const {
    std::vector<Variable> parts;
    for (const int32_t segment : last_of_row) parts.push_back(slice(tape, values, 0, segment, segment + 1));
    return concatenate(tape, parts, 0);
  }
};

Tensor optional(GoldenCase& golden, const std::string& dataset) {
  return golden.has(dataset) ? golden.get(dataset) : Tensor();
}

void run_convolution(GoldenCase& golden) {
  const std::map<std::string, Variable> leaves = golden.leaves();
  const Rows rows(golden.get("in/reset"));
  const int64_t channels = golden.number("channels"), kept = golden.number("conv") - 1;
  EXPECT_EQ(golden.flag("conv_bias"), leaves.contains("bias"));
  EXPECT_EQ(golden.flag("state_in"), golden.has("in/x0"));
  golden.unused({"batch", "seq_len"});
  Tape tape;
  const Variable x = reshape(tape, leaves.at("x"), {rows.rows * rows.length, channels});
  const Tensor before =
      rows.begin(optional(golden, "in/x0"), {kept, channels}, golden.dtype()).reshape({rows.count(), kept, channels});
  const Variable bias = leaves.contains("bias") ? leaves.at("bias") : Variable();
  const Variable y = short_convolution(tape, {x, leaves.at("w"), bias, before}, rows.table());
  const Variable out = reshape(tape, y, {rows.rows, rows.length, channels});
  golden.expect("out/y", out.value());
  const Tensor taps = delta_taps(x.value(), before, delta_tap_rows(rows.segments, kept + 1, test_device()));
  golden.expect("out/x_end", rows.ends(tape, Variable::constant(taps)).value());
  tape.backward({{weighted_sum(tape, out, golden.get("grad_out/y")), 1.0}});
  golden.expect_gradients(leaves);
}

double bound_of(GoldenCase& golden) {
  const double bound = golden.real("lower_bound");
  return golden.text("gate") == "softplus" ? 0 : bound;
}

void run_decay(GoldenCase& golden) {
  const std::map<std::string, Variable> leaves = golden.leaves();
  const int64_t heads = golden.number("n_v_head"),
                features = leaves.at("a").value().numel() / (golden.number("batch") * golden.number("seq_len") * heads);
  golden.unused({"d_k"});
  Tape tape;
  const Variable& a = leaves.at("a");
  const bool has_rate = golden.text("gate") != "lower_free";
  const Variable g = delta_decay(tape,
                                 {.a = reshape(tape, a, {a.value().numel() / (heads * features), heads, features}),
                                  .log_rate = has_rate ? leaves.at("A_log") : Variable(),
                                  .bias = reshape(tape, leaves.at("dt_bias"), {heads, features})},
                                 bound_of(golden));
  const Variable out = reshape(tape, g, a.shape());
  golden.expect("out/g", out.value());
  tape.backward({{weighted_sum(tape, out, golden.get("grad_out/g")), 1.0}});
  golden.expect_gradients(leaves);
}

class DeltaGolden {
 public:
  explicit DeltaGolden(GoldenCase& golden)
      : golden_(golden),
        leaves_(golden.leaves()),
        rows_(golden.get("in/reset")),
        shape_{golden.number("n_head"), golden.number("n_v_head"), golden.number("d_k"), golden.number("d_v")} {}

  void run(bool by_feature) {
    const DeltaConfig config = options(by_feature);
    Tape tape;
    const Variable& x = leaves_.at("x");
    DeltaInput in;
    in.z = reshape(tape, x, {rows_.rows * rows_.length, x.dim(2)});
    const Shape state{shape_.heads, shape_.key, shape_.value};
    in.state = Variable::constant(rows_.begin(optional(golden_, "in/state0"), state, golden_.dtype())
                                      .reshape({rows_.count(), state[0], state[1], state[2]}));
    in.segments = rows_.table();
    if (config.conv > 0) carry(config, in);
    const DeltaMix mix = delta_mix(tape, config, shape_, weights(tape, config), in);

    const Variable y = linear(tape, mix.out, leaves_.at("w_o")), end = rows_.ends(tape, mix.state);
    golden_.expect("out/y", y.value().reshape(x.shape()));
    golden_.expect("out/state_end", end.value());
    golden_.expect("out/o", by_cell(mix.recalled));
    golden_.expect("out/g", by_cell(mix.decay));
    golden_.expect("out/b", by_cell(mix.erase));
    if (config.gates == DeltaGates::gdn2) golden_.expect("out/w", by_cell(mix.write));
    if (config.conv > 0) {
      golden_.expect("out/conv_q", rows_.ends(tape, Variable::constant(mix.taps.query)).value());
      golden_.expect("out/conv_k", rows_.ends(tape, Variable::constant(mix.taps.key)).value());
      golden_.expect("out/conv_v", rows_.ends(tape, Variable::constant(mix.taps.value)).value());
    }
    tape.backward({{weighted_sum(tape, reshape(tape, y, x.shape()), golden_.get("grad_out/y")), 1.0},
                   {weighted_sum(tape, end, golden_.get("grad_out/state_end")), 1.0}});
    golden_.expect_gradients(leaves_);
  }

 private:
  DeltaConfig options(bool by_feature) const {
    DeltaConfig config;
    config.gates = golden_.text("gates") == "vector" ? DeltaGates::gdn2
                   : by_feature                      ? DeltaGates::channel
                                                     : DeltaGates::scalar;
    config.rule = golden_.text("rule") == "additive" ? DeltaRule::additive : DeltaRule::delta;
    config.conv = golden_.number("conv");
    config.conv_bias = golden_.flag("conv_bias");
    config.qk_norm = golden_.flag("qk_norm");
    golden_.expect_only("qk_eps", 1e-6);
    golden_.unused({"scale", "d_model", "batch", "seq_len", "rank", "state_in"});
    config.negative = golden_.flag("neg_eig");
    const std::string gate = golden_.text("gate"), output = golden_.text("out_gate");
    config.decay.kind = gate == "softplus" ? DeltaDecayKind::softplus
                        : gate == "lower"  ? DeltaDecayKind::lower
                                           : DeltaDecayKind::lower_free;
    config.decay.bound = golden_.real("lower_bound");
    config.output_gate = output == "silu"      ? DeltaOutputGate::silu
                         : output == "sigmoid" ? DeltaOutputGate::sigmoid
                                               : DeltaOutputGate::none;
    config.norm_eps = golden_.real("norm_eps");
    return config;
  }

  Variable leaf(const std::string& name) const { return leaves_.contains(name) ? leaves_.at(name) : Variable(); }

  DeltaWeights weights(Tape& tape, const DeltaConfig& config) const {
    const bool by_feature = config.decays_by_feature();
    DeltaWeights w;
    w.query = leaf("w_q"), w.key = leaf("w_k"), w.value = leaf("w_v");
    w.query_taps = leaf("conv_q"), w.key_taps = leaf("conv_k"), w.value_taps = leaf("conv_v");
    w.query_bias = leaf("conv_q_b"), w.key_bias = leaf("conv_k_b"), w.value_bias = leaf("conv_v_b");
    w.decay_down = leaf("w_f1"), w.decay = leaf(by_feature ? "w_f2" : "w_a");
    w.log_rate = leaf("A_log");
    w.decay_bias = reshape(tape, leaf("dt_bias"), {shape_.heads, by_feature ? shape_.key : 1});
    w.erase = leaf("w_b"), w.write = leaf("w_w");
    w.gate_down = leaf("w_g1"), w.gate = leaf(by_feature ? "w_g2" : "w_g"), w.gate_bias = leaf("b_g2");
    w.norm = leaf("g_norm");
    return w;
  }

  void carry(const DeltaConfig& config, DeltaInput& in) const {
    const int64_t kept = config.conv - 1;
    const auto taps = [&](const char* dataset, int64_t channels) {
      return rows_.begin(optional(golden_, dataset), {kept, channels}, golden_.dtype())
          .reshape({rows_.count(), kept, channels});
    };
    in.taps = {taps("in/conv_q0", shape_.key_heads * shape_.key), taps("in/conv_k0", shape_.key_heads * shape_.key),
               taps("in/conv_v0", shape_.heads * shape_.value)};
    in.tap_rows = delta_tap_rows(rows_.segments, config.conv, test_device());
  }

  // [N, HV, F] as [B, T, HV, F], without F where it is 1 and the file has none.
  Tensor by_cell(const Variable& x) const {
    if (x.dim(2) == 1 && shape_.value > 1) return x.value().reshape({rows_.rows, rows_.length, x.dim(1)});
    return x.value().reshape({rows_.rows, rows_.length, x.dim(1), x.dim(2)});
  }

  GoldenCase& golden_;
  std::map<std::string, Variable> leaves_;
  Rows rows_;
  DeltaShape shape_;
};

TEST(GoldenGatedDelta, Convolution) {
  GoldenFile(golden_folder(), "gated_delta").for_each_case("conv", run_convolution);
}

TEST(GoldenGatedDelta, Decay) {
  GoldenFile(golden_folder(), "gated_delta").for_each_case("gate", run_decay);
}

TEST(GoldenGatedDelta, Layer) {
  GoldenFile(golden_folder(), "gated_delta").for_each_case("layer", [](GoldenCase& golden) {
    DeltaGolden(golden).run(false);
  });
}

TEST(GoldenKda, Decay) {
  GoldenFile(golden_folder(), "kda").for_each_case("gate", run_decay);
}

TEST(GoldenKda, Layer) {
  GoldenFile(golden_folder(), "kda").for_each_case("layer", [](GoldenCase& golden) { DeltaGolden(golden).run(true); });
}

}  // namespace
}  // namespace quire::test
