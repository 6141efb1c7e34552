#include "layers/model/block.h"

#include <algorithm>

#include "autograd/functions/basic.h"
#include "layers/mechanism/mechanism_registry.h"
#include "layers/pass/host_values.h"
#include "layers/position/token_shift.h"

namespace quire {

SubLayer::SubLayer(const Scope& block, const ModelConfig& model, const SubLayerSpec& spec)
    : placement_(model.norm.placement),
      recomputes_(model.recompute == spec.recomputed),
      dropout_(model.dropout.residual),
      dropout_scope_(hash_scope(block.path() + "." + spec.name + ".residual")),
      norm_(block.child(spec.name + "_norm"), model) {
  if (placement_ == NormPlacement::both) out_norm_.emplace(block.child(spec.name + "_out_norm"), model);
}

void SubLayer::make_part(const Scope& block, const SubLayerSpec& spec, const ModelConfig& model) {
  recomputed_.begin(block.declared());
  part_ = spec.make(block.child(spec.name), model);
  recomputed_.end(block.declared());
}

Variable SubLayer::run(const Forward& f, const Variable& x, const Variable& sum) const {
  const bool normalises_input = placement_ == NormPlacement::pre || placement_ == NormPlacement::both;
  const Variable y = (*part_)(f, {x, normalises_input ? &norm_ : nullptr, sum});
  if (!normalises_output()) return y;
  return out_norm_ ? (*out_norm_)(f.tape, y) : norm_(f.tape, y);
}

Variable SubLayer::operator()(const Forward& f, const Variable& x, const Variable& sum, const Tensor& kept) const {
  const ops::DropoutKey dropped = f.dropout(dropout_scope_, dropout_);
  // A recomputation differentiates by its input alone, so that another sum has to be added outside.
  const bool adds = part_->adds_residual() && dropped.probability == 0 && !kept.defined() && !normalises_output() &&
                    !(recomputes_ && sum.defined());
  const Variable& residual = sum.defined() ? sum : x;
  Variable y = recomputes_ ? recomputed_(f, x,
                                         [this, adds](const Forward& pass, const Variable& in) {
                                           return run(pass, in, adds ? in : Variable());
                                         })
                           : run(f, x, adds ? residual : Variable());
  if (kept.defined()) {
    const Shape shape = y.shape();
    const Variable by_row = reshape(f.tape, y, {1, shape[0], shape[1] * shape[2]});
    y = reshape(f.tape, scale_heads(f.tape, by_row, Variable::constant(kept)), shape);
  }
  if (!adds) y = dropout(f.tape, y, residual, dropped);
  return placement_ == NormPlacement::post ? norm_(f.tape, y) : y;
}

Block::Block(const Scope& scope, const ModelConfig& model, const std::vector<SubLayerSpec>& parts)
    : parallel_(model.residual == Residual::parallel),
      recomputes_(model.recompute == Recompute::blocks),
      layer_dropout_(model.dropout.layer),
      draw_scope_(hash_scope(scope.path() + ".attention.residual") + 1) {
  recomputed_.begin(scope.declared());
  for (const SubLayerSpec& part : parts) sub_layers_.push_back(std::make_unique<SubLayer>(scope, model, part));
  for (size_t i = 0; i < parts.size(); ++i) sub_layers_[i]->make_part(scope, parts[i], model);
  recomputed_.end(scope.declared());
}

Tensor Block::drawn_rows(const Forward& f, const Variable& x) const {
  if (!f.training || layer_dropout_ == 0) return {};
  const auto threshold = static_cast<uint64_t>(layer_dropout_ * 4294967296.0);
  std::vector<double> factors;
  for (int64_t r = 0; r < x.dim(0); ++r) {
    const auto bits = philox(f.key, draw_scope_, static_cast<uint32_t>(f.batch.first_row + r), 0, 0);
    factors.push_back(bits[0] >= threshold ? 1 / (1 - layer_dropout_) : 0.0);
  }
  return tensor_of(factors, {x.dim(0)}, wide_type(x.value().dtype()), x.value().device());
}

Variable Block::run(const Forward& f, const Variable& x) const {
  const Tensor kept = drawn_rows(f, x);
  Variable h = x;
  for (const std::unique_ptr<SubLayer>& part : sub_layers_) {
    h = parallel_ ? (*part)(f, x, h, kept) : (*part)(f, h, {}, kept);
  }
  return h;
}

Variable Block::operator()(const Forward& f, const Variable& x) const {
  if (!recomputes_) return run(f, x);
  return recomputed_(f, x, [this](const Forward& pass, const Variable& in) { return run(pass, in); });
}

std::vector<SubLayerSpec> mixer_and_mlp(const Place& place, const Surroundings& around) {
  const Mechanism& mixer = mechanism(Role::mixer, place.layer.attention.mechanism.kind);
  const auto make_mixer = [&](const Scope& scope, const ModelConfig&) -> std::unique_ptr<Part> {
    std::unique_ptr<Part> made = mixer.make_mixer(scope, place, around);
    const int64_t features = place.layer.attention.shifted_features(place.model.width);
    if (features == 0) return made;
    return std::make_unique<ShiftedMixer>(scope, features, std::move(made));
  };
  std::vector<SubLayerSpec> parts{{"attention", Recompute::attention, make_mixer}};
  if (place.model.mlp.kind != MlpKind::none) {
    parts.push_back({"mlp", Recompute::mlp,
                     [](const Scope& scope, const ModelConfig& model) { return std::make_unique<Mlp>(scope, model); }});
  }
  return parts;
}

std::vector<std::unique_ptr<Block>> make_blocks(const Scope& root, const ModelConfig& model, int64_t begin, int64_t end,
                                                const std::vector<SubLayerSpec>& further) {
  const std::vector<LayerConfig> layers = model.layer_configs();
  Surroundings around;
  std::vector<std::unique_ptr<Block>> blocks;
  for (int64_t i = begin; i < end; ++i) {
    std::vector<MemoryConfig> memories;
    for (const MemoryConfig& memory : model.memory) {
      for (const int64_t layer : memory.layers) {
        if (model.layer_index(layer) == i) memories.push_back(memory);
      }
    }
    around.memories = memories;
    const LayerConfig& layer = layers[static_cast<size_t>(i)];
    const ModelConfig seen = model.as_seen_by(layer);
    const Place place{.model = seen, .layer = layer, .options = layer.attention.mechanism.options, .index = i};
    std::vector<SubLayerSpec> parts = mixer_and_mlp(place, around);
    for (const SubLayerSpec& part : further) {
      const auto same =
          std::find_if(parts.begin(), parts.end(), [&](const SubLayerSpec& other) { return other.name == part.name; });
      if (same == parts.end()) {
        parts.push_back(part);
      } else {
        *same = part;
      }
    }
    blocks.push_back(std::make_unique<Block>(root.child("blocks", i), seen, parts));
  }
  return blocks;
}

}  // namespace quire
