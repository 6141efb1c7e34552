// The descriptor of Infini-attention (layers/mechanism/mechanism.h).
#include <algorithm>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/infini_heads.h"
#include "layers/model/surroundings.h"

namespace quire {

namespace {

const InfiniConfig& options(const Place& place) {
  return place.options.get<InfiniConfig>();
}

StepFlops flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const InfiniConfig& infini = options(place);
  const HeadShape heads = HeadShape::of(model);
  const auto tokens = static_cast<double>(shape.rows * shape.subsequence);
  const auto e = static_cast<double>(model.width), size = static_cast<double>(heads.size);
  const double inner = static_cast<double>(heads.heads) * size, key_inner = static_cast<double>(heads.key_heads) * size;
  const double seen =
      infini.window ? static_cast<double>(*infini.window + 1) : static_cast<double>(infini.block + 1) / 2;
  double memory = (inner + key_inner * (infini.update == InfiniUpdate::delta ? 2 : 1)) * (size + 1);
  if (!infini.remembers()) memory = 0;
  const bool relative = place.layer.position.kind == Position::xl;
  return {.learned = tokens * 2 * (2 * e * inner + 2 * e * key_inner + seen * (relative ? 3 : 2) * inner + memory)};
}

int64_t reach(const Place& place, const TargetPlace& target) {
  const InfiniConfig& infini = options(place);
  if (infini.remembers()) return target.position;
  return infini.window ? std::min(*infini.window, target.position) : target.position % infini.block;
}

// While a document has no complete block before a token, empty_gate: local leaves softmax attention to all of it.
Promises promises(const Place& place) {
  const InfiniConfig& infini = options(place);
  const bool local = !infini.remembers() || infini.empty_gate == InfiniEmptyGate::local;
  const bool full = local && (!infini.window || *infini.window >= infini.block - 1);
  return {.exact_gradient = !infini.remembers() || !infini.bptt,
          .split_invariant = true,
          .full_attention = full ? infini.block : 0};
}

}  // namespace

Mechanism infini_mixer() {
  return {
      .role = Role::mixer,
      .kind = "infini",
      .help = "local attention, and a memory of fixed size that holds all earlier blocks (Infini-attention)",
      .options = [] { return ConfigBox(InfiniConfig{}); },
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<ProjectedHeads<InfiniHeads>>(scope, place.model, place, around.tables);
      },
      .reach = reach,
      .flops = flops,
      .promises = promises};
}

}  // namespace quire
