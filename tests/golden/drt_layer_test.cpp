// Golden drt_layer: a whole small decoder with chunks, from token ids to the loss and the gradients of all weights.
#include <gtest/gtest.h>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "layers/parts/basic.h"
#include "layers/stacks/drt.h"
#include "layers/state/state_pool.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"
#include "tests/support/softmax_options.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

DrtConfig options_of(const GoldenCase& golden, bool carry) {
  DrtConfig drt;
  drt.chunk = golden.number("chunk");
  drt.top_k = golden.number("topk");
  drt.groups = golden.number("n_groups");
  drt.lower_layers = golden.number("n_lower");
  drt.encoder_layers = golden.number("n_enc");
  drt.carry.in_training = carry;
  drt.carry.length = 64;
  drt.noise = golden.flag("has_noise") ? 1 : 0;
  drt.landmark_norm = golden.flag("lmk_norm");
  drt.landmark_projection = golden.flag("lmk_proj");
  drt.softmax_one = golden.flag("softmax1");
  drt.query_norm = golden.flag("gca_prenorm");
  drt.out_projection = golden.flag("gca_oproj");
  drt.residual = static_cast<ReaderResidual>(golden.number("ffn_residual"));
  return drt;
}

ModelConfig model_of(const GoldenCase& golden) {
  EXPECT_TRUE(golden.flag("alibi"));
  EXPECT_EQ(golden.real("rope_base"), 10000);
  ModelConfig model;
  model.width = golden.number("d_model");
  model.layers = golden.number("n_lower") + golden.number("n_groups") * golden.number("n_upper_per_group");
  model.heads = golden.number("n_head");
  model.key_heads = golden.number("n_kv_head");
  model.norm.kind = NormKind::rms;
  model.norm.eps = golden.real("rms_eps");
  model.mlp.kind = MlpKind::swiglu;
  model.mlp.hidden = golden.number("d_ff");
  model.position.kind = Position::alibi;
  softmax_options(model).window = golden.number("window");
  return model;
}

// The dataset of a parameter, and its place along the dataset's first axis; -1: it is the whole dataset.
std::pair<std::string, int64_t> dataset_of(const std::string& parameter, int64_t lower) {
  static const std::map<std::string, std::string> layer{{"attention_norm.weight", "norm_attn"},
                                                        {"attention.query.weight", "wq"},
                                                        {"attention.key.weight", "wk"},
                                                        {"attention.value.weight", "wv"},
                                                        {"attention.out.weight", "wo"},
                                                        {"mlp_norm.weight", "norm_ffn"},
                                                        {"mlp.gate.weight", "w_gate"},
                                                        {"mlp.up.weight", "w_up"},
                                                        {"mlp.down.weight", "w_down"},
                                                        {"mlp.query.weight", "gca_wq"},
                                                        {"mlp.out.weight", "gca_wo"},
                                                        {"mlp.query_norm.weight", "norm_gca"},
                                                        {"norm.weight", "lmk_norm"},
                                                        {"query.weight", "w_h"}};
  static const std::map<std::string, std::string> single{{"stack.encoder.norm.weight", "enc_prenorm"},
                                                         {"stack.encoder.out_norm.weight", "enc/norm_out"},
                                                         {"stack.key.weight", "chunk_wk"},
                                                         {"stack.value.weight", "chunk_wv"},
                                                         {"stack.landmark.weight", "w_l"},
                                                         {"norm.weight", "norm_out"}};
  if (const auto found = single.find(parameter); found != single.end()) return {found->second, -1};
  for (const auto& [prefix, folder] :
       std::map<std::string, std::string>{{"blocks.", ""}, {"stack.encoder.layers.", "enc/"}, {"stack.groups.", ""}}) {
    if (!parameter.starts_with(prefix)) continue;
    const size_t dot = parameter.find('.', prefix.size());
    const int64_t index = std::stoll(parameter.substr(prefix.size(), dot - prefix.size()));
    const std::string& name = layer.at(parameter.substr(dot + 1));
    if (prefix != "blocks.") return {folder + name, index};
    return {(index < lower ? "lower/" : "upper/") + name, index < lower ? index : index - lower};
  }
  throw std::out_of_range(parameter);
}

Tensor dataset_part(const GoldenCase& golden, const std::string& folder, const std::string& parameter) {
  const auto [dataset, index] = dataset_of(parameter, golden.number("n_lower"));
  const Tensor all = golden.get(folder + dataset);
  return index < 0 ? all : all.select(0, index);
}

class Decoder {
 public:
  Decoder(const GoldenCase& golden, bool carry)
      : golden_(golden),
        model_(model_of(golden)),
        box_(options_of(golden, carry)),
        scope_(store_, declared_, golden.dtype()),
        layers_(model_.layer_configs()),
        stack_(scope_.child("stack"), {model_, layers_.front(), box_}),
        norm_(scope_.child("norm"), model_),
        embedding_(Variable::leaf(golden.get("in/emb"))) {
    store_.allocate(golden.dtype(), test_device(), 1);
    for (const ParameterStore::Entry& entry : store_.entries()) {
      entry.variable.value().copy_from(dataset_part(golden, "in/", entry.name));
    }
    ChunkHooks hooks;
    hooks.seen = [this](const std::string& name, const Variable& value) { seen_[name] = value.value(); };
    if (golden.flag("has_noise")) {
      noise_ = golden.get("in/gumbel").to(kCpu);
      hooks.noise = [this](int64_t group, int64_t row, int64_t chunk, int64_t candidate) {
        const int64_t chunks = noise_.dim(3);
        const int64_t at = ((row * noise_.dim(1) + group) * chunks + chunk) * chunks + candidate;
        return noise_.dtype() == DType::f64 ? noise_.data<double>()[at] : noise_.data<float>()[at];
      };
    }
    stack_.set_hooks(hooks);
  }

  // Final states of positions [begin, end) of every row.
  Variable read(StatePool& pool, Tape& tape, const Tensor& ids, int64_t begin, int64_t end) {
    const int64_t rows = ids.dim(0);
    const Batch batch = one_segment_from(begin, rows, end - begin);
    pool.begin_step(batch);
    const StateView view = pool.view(0, rows);
    Forward f{.tape = tape, .batch = batch, .state = view};
    f.training = true;
    f.values = std::make_shared<std::vector<Variable>>(declared_.values.size());
    const Variable x = gather_rows(tape, embedding_, part(ids, 1, begin, end));
    const Variable y = norm_(tape, stack_(f, x));
    pool.commit();
    return y;
  }
  StatePool state(int64_t rows, int64_t length) const {
    return StatePool(declared_.state, rows, length, golden_.dtype(), test_device());
  }

  const Tensor& seen(const std::string& name) const { return seen_.at(name); }
  const Variable& embedding() const { return embedding_; }
  const ParameterStore& store() const { return store_; }

 private:
  const GoldenCase& golden_;
  ModelConfig model_;
  ConfigBox box_;
  ParameterStore store_;
  Declarations declared_;
  Scope scope_;
  std::vector<LayerConfig> layers_;
  DrtStack stack_;
  Norm norm_;
  Variable embedding_;
  Tensor noise_;
  std::map<std::string, Tensor> seen_;
};

// A landmark behind every chunk: i32 [B, N (S + 1)].
Tensor with_landmarks(const GoldenCase& golden) {
  const Tensor tokens = golden.get("in/tokens");
  const std::vector<int32_t> ids = tokens.to_vector<int32_t>();
  const auto chunk = static_cast<size_t>(golden.number("chunk"));
  std::vector<int32_t> made;
  for (size_t i = 0; i < ids.size(); ++i) {
    made.push_back(ids[i]);
    if (i % chunk == chunk - 1) made.push_back(static_cast<int32_t>(golden.number("lmk_id")));
  }
  const int64_t rows = tokens.dim(0);
  return Tensor::from(made, {rows, static_cast<int64_t>(made.size()) / rows}, test_device());
}

// x [B, N C, ..] without the last position of every chunk: [B, N S, ..].
Variable without_landmarks(Tape& tape, const GoldenCase& golden, const Variable& x) {
  const int64_t chunk = golden.number("chunk"), rows = x.dim(0), size = x.dim(2);
  const int64_t chunks = x.dim(1) / (chunk + 1);
  const Variable tokens = slice(tape, reshape(tape, x, {rows, chunks, chunk + 1, size}), 2, 0, chunk);
  return reshape(tape, tokens, {rows, chunks * chunk, size});
}

void expect_seen(GoldenCase& golden, const Decoder& decoder) {
  const int64_t rows = golden.number("batch"), chunks = golden.number("n_chunk"), chunk = golden.number("chunk");
  const int64_t width = golden.number("d_model"), groups = golden.number("n_groups");
  golden.expect("out/h_lower", decoder.seen("lower"));
  Tape tape(false);
  const Variable encoded =
      reshape(tape, Variable::constant(decoder.seen("encoded")), {rows, chunks * (chunk + 1), width});
  golden.expect("out/chunk_repr", without_landmarks(tape, golden, encoded).value());
  const Variable by_chunk = reshape(tape, encoded, {rows, chunks, chunk + 1, width});
  golden.expect("out/landmark", slice(tape, by_chunk, 2, chunk, chunk + 1).value().reshape({rows, chunks, width}));
  for (const auto& [dataset, name] : {std::pair{"out/chunk_k", "keys"}, {"out/chunk_v", "values"}}) {
    const Tensor heads = decoder.seen(name);
    golden.expect(dataset, heads.reshape({rows, chunks * chunk, heads.dim(2), heads.dim(3)}));
  }
  for (const auto& [dataset, name] :
       {std::pair{"out/scores", ".scores"}, {"out/topk_idx", ".index"}, {"out/topk_w", ".weight"}}) {
    Tensor all;
    for (int64_t g = 0; g < groups; ++g) {
      const Tensor one = decoder.seen("groups." + std::to_string(g) + name);
      const Tensor of_group = one.reshape({rows, 1, one.dim(1), one.dim(2)});
      all = g == 0 ? of_group : joined(all, of_group, 1);
    }
    golden.expect(dataset, all);
  }
}

// The mean nats of the next token, f64 [1].
Variable loss_of(Tape& tape, const GoldenCase& golden, const Variable& logits) {
  const int64_t rows = logits.dim(0), tokens = logits.dim(1), vocabulary = logits.dim(2);
  const std::vector<int32_t> ids = golden.get("in/tokens").to_vector<int32_t>();
  std::vector<int32_t> targets;
  std::vector<double> weights;
  for (int64_t i = 0; i < rows * tokens; ++i) {
    const bool counts = i % tokens < tokens - 1;
    targets.push_back(counts ? ids[static_cast<size_t>(i) + 1] : 0);
    weights.push_back(counts ? 1 / static_cast<double>(rows * (tokens - 1)) : 0);
  }
  const Variable found = gather_rows(tape, reshape(tape, logits, {rows, tokens, vocabulary, 1}),
                                     Tensor::from(targets, {rows, tokens, 1}, test_device()));
  const Variable nats = subtract(tape, log_sum_exp(tape, logits), reshape(tape, found, {rows, tokens}));
  const Tensor mean = Tensor::from(weights, {rows, tokens}).to(test_device());
  return weighted_sum(tape, nats, convert(tape, Variable::constant(mean), nats.value().dtype()).value());
}

TEST(GoldenDrtLayer, AllCases) {
  GoldenFile(golden_folder(), "drt_layer").for_each_case([](GoldenCase& golden) {
    Decoder decoder(golden, true);
    const Tensor ids = with_landmarks(golden);
    StatePool pool = decoder.state(ids.dim(0), ids.dim(1));
    Tape tape;
    const Variable h = decoder.read(pool, tape, ids, 0, ids.dim(1));
    golden.expect("out/h_out", h.value());
    expect_seen(golden, decoder);
    const Variable logits = linear(tape, without_landmarks(tape, golden, h), decoder.embedding());
    golden.expect("out/logits", logits.value());
    const Variable loss = loss_of(tape, golden, logits);
    golden.expect("out/loss", converted(loss.value(), golden.dtype()));
    const double of_loss = golden.get("grad_out/loss").to(kCpu).dtype() == DType::f64
                               ? golden.get("grad_out/loss").to_vector<double>()[0]
                               : golden.get("grad_out/loss").to_vector<float>()[0];
    tape.backward({{weighted_sum(tape, logits, golden.get("grad_out/logits")), 1.0}, {loss, of_loss}});
    golden.expect("grad/emb", decoder.embedding().gradient()->value());
    std::map<std::string, Tensor> gradients;  // of stacked layers, in the order of layers
    for (const ParameterStore::Entry& entry : decoder.store().entries()) {
      const auto [dataset, index] = dataset_of(entry.name, golden.number("n_lower"));
      const Tensor gradient = ParameterStore::slice(decoder.store().gradients(), entry);
      if (index < 0) {
        golden.expect("grad/" + dataset, gradient);
        continue;
      }
      const Shape one = entry.shape.rank() == 1 ? Shape{1, entry.shape[0]} : Shape{1, entry.shape[0], entry.shape[1]};
      Tensor& all = gradients[dataset];
      all = index == 0 ? gradient.reshape(one) : joined(all, gradient.reshape(one), 0);
    }
    for (const auto& [dataset, gradient] : gradients) golden.expect("grad/" + dataset, gradient);
  });
}

}  // namespace
}  // namespace quire::test
