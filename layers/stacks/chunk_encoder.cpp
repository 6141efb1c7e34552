#include "layers/stacks/chunk_encoder.h"

#include <cmath>

#include "autograd/functions/attention.h"

namespace quire {

namespace {

// All heads have keys of their own, whatever the other layers of the model have.
ModelConfig with_all_heads(ModelConfig model) {
  model.key_heads.reset();
  return model;
}

}  // namespace

ChunkEncoder::Layer::Layer(const Scope& scope, const ModelConfig& model)
    : attention_norm(scope.child("attention_norm"), model),
      attention(scope.child("attention"), with_all_heads(model)),
      mlp_norm(scope.child("mlp_norm"), model),
      mlp(scope.child("mlp"), model) {}

ChunkEncoder::ChunkEncoder(const Scope& scope, const ModelConfig& model, int64_t layers, int64_t positions)
    : recomputes_(model.recompute == Recompute::blocks),
      scale_(1 / std::sqrt(static_cast<double>(model.size_of_head()))),
      norm_(scope.child("norm"), model),
      out_norm_(scope.child("out_norm"), model),
      rotation_(Position::rope, {}, model.size_of_head(), positions, std::make_shared<PositionTables>()) {
  for (int64_t i = 0; i < layers; ++i) layers_.push_back(std::make_unique<Layer>(scope.child("layers", i), model));
}

Variable ChunkEncoder::run(const Layer& layer, const Forward& f, const Variable& x) const {
  Tape& tape = f.tape;
  const int64_t chunks = x.dim(0), positions = x.dim(1);
  const Device device = x.value().device();
  const auto table = [&](const char* name, int64_t last) {
    return f.table(name, {chunks, positions}, [&] {
      std::vector<int32_t> places;
      for (int64_t i = 0; i < chunks * positions; ++i) {
        places.push_back(static_cast<int32_t>(last < 0 ? i % positions : last));
      }
      return Tensor::from(places, {chunks, positions}, device);
    });
  };
  const Variable z = layer.attention_norm(tape, x);
  const Tensor places = table("chunks.places", -1);
  AttentionVariables heads;
  heads.q = rotation_.by_positions(tape, layer.attention.queries(tape, z), places, positions);
  heads.k = rotation_.by_positions(tape, layer.attention.keys(tape, z), places, positions);
  heads.v = layer.attention.values(tape, z);
  ops::AttentionInputs settings;
  settings.first_visible = table("chunks.first", 0);
  settings.last_visible = table("chunks.last", positions - 1);
  settings.scale = scale_;
  const Variable y = layer.attention.out(tape, attention(tape, heads, settings), x);
  return layer.mlp(f, {y, &layer.mlp_norm, y});
}

Variable ChunkEncoder::operator()(const Forward& f, const Variable& chunks) const {
  Forward pass = f;
  pass.training = false;  // rows of this pass are chunks, which dropout does not know
  Variable x = norm_(f.tape, chunks);
  for (const std::unique_ptr<Layer>& layer : layers_) {
    const auto one = [this, &layer](const Forward& given, const Variable& in) { return run(*layer, given, in); };
    x = recomputes_ ? layer->recomputed(pass, x, one) : one(pass, x);
  }
  return out_norm_(f.tape, x);
}

}  // namespace quire
