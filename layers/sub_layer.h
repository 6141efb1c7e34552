// A part of a block around the residual stream: x + part(norm(x)), or norm(x + part(x)).
#pragma once

#include <memory>

#include "layers/basic.h"
#include "layers/part.h"
#include "layers/recomputed.h"

namespace quire {

struct SubLayerSpec {
  std::string name;      // of the part's scope in the block; its normalisation is NAME_norm
  Recompute recomputed;  // with this setting of model.recompute the part is computed a second time
  std::function<std::unique_ptr<Part>(const Scope& scope)> make;
};

class SubLayer {
 public:
  // Declares the normalisation; make_part declares the part, so that a block can declare all its normalisations first.
  SubLayer(const Scope& block, const ModelConfig& model, const SubLayerSpec& spec);
  void make_part(const Scope& block, const SubLayerSpec& spec);

  // kept [R], or undefined: what the part adds to a row is multiplied by it (layer drop).
  Variable operator()(const Forward& f, const Variable& x, const Tensor& kept) const;

 private:
  Variable added(const Forward& f, const Variable& x) const;

  bool pre_;
  bool recomputes_;
  double dropout_;
  uint32_t dropout_scope_;
  Norm norm_;
  Recomputed recomputed_;
  std::unique_ptr<Part> part_;
};

}  // namespace quire
