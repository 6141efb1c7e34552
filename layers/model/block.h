// A block: a list of sub-layers around the residual stream, as a rule a mixer and a feed-forward layer.
#pragma once

#include <memory>
#include <optional>

#include "layers/mechanism/mechanism.h"
#include "layers/model/surroundings.h"
#include "layers/parts/basic.h"
#include "layers/parts/part.h"
#include "layers/pass/recomputed.h"

namespace quire {

struct SubLayerSpec {
  std::string name;      // of the part's scope in the block; its normalisations are NAME_norm and NAME_out_norm
  Recompute recomputed;  // with this setting of model.recompute the part is computed a second time
  // model: as the layer sees it (ModelConfig::as_seen_by).
  std::function<std::unique_ptr<Part>(const Scope& scope, const ModelConfig& model)> make;
};

// A part around the residual stream, by norm.placement: x + part(norm(x)), norm(x + part(x)), x + norm(part(x)) or
// x + out_norm(part(norm(x))).
class SubLayer {
 public:
  // Declares the normalisation; make_part declares the part, so that a block can declare all its normalisations first.
  SubLayer(const Scope& block, const ModelConfig& model, const SubLayerSpec& spec);
  void make_part(const Scope& block, const SubLayerSpec& spec, const ModelConfig& model);

  // sum: what the part's output is added to; undefined: x. kept [R], or undefined: a factor for the part's output in
  // each row (layer drop).
  Variable operator()(const Forward& f, const Variable& x, const Variable& sum, const Tensor& kept) const;

 private:
  // Returns the part's output with its normalisations before the sum, or the sum itself where one is given.
  Variable run(const Forward& f, const Variable& x, const Variable& sum) const;
  bool normalises_output() const { return placement_ == NormPlacement::after || placement_ == NormPlacement::both; }

  NormPlacement placement_;
  bool recomputes_;
  double dropout_;
  uint32_t dropout_scope_;
  Norm norm_;
  std::optional<Norm> out_norm_;  // placement both
  Recomputed recomputed_;
  std::unique_ptr<Part> part_;
};

class Block {
 public:
  // model: as the layer sees it.
  Block(const Scope& scope, const ModelConfig& model, const std::vector<SubLayerSpec>& parts);
  Variable operator()(const Forward& f, const Variable& x) const;  // [R, T, E] -> [R, T, E]

 private:
  Variable run(const Forward& f, const Variable& x) const;
  // Returns the factor of layer drop for the block's output in each row, 0 where that is dropped.
  Tensor drawn_rows(const Forward& f, const Variable& x) const;

  bool parallel_;
  bool recomputes_;
  double layer_dropout_;
  uint32_t draw_scope_;
  Recomputed recomputed_;
  std::vector<std::unique_ptr<SubLayer>> sub_layers_;
};

// Makes the mixer and the feed-forward layer of a layer; `place` is that of its mixer. `place` and `around` must live
// until the parts are made.
std::vector<SubLayerSpec> mixer_and_mlp(const Place& place, const Surroundings& around);

// Makes blocks [begin, end) of a model, named blocks.N, where N counts the layers of the whole model. further: parts
// that a stack adds to these blocks; one that is called like a part of every block takes its place.
std::vector<std::unique_ptr<Block>> make_blocks(const Scope& root, const ModelConfig& model, int64_t begin, int64_t end,
                                                const std::vector<SubLayerSpec>& further = {});

}  // namespace quire
