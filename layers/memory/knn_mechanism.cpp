// The descriptor of the kNN memory (layers/mechanism/mechanism.h).
#include <algorithm>

#include "layers/mechanism/mechanism_list.h"
#include "layers/memory/knn.h"
#include "layers/model/model_mechanisms.h"

namespace quire {

namespace {

const KnnConfig& options(const Place& place) {
  return place.options.get<KnnConfig>();
}

bool evicts(const Place& place) {
  return options(place).write == KnnWrite::evict;
}

int64_t carried_by_mixer(const Place& place) {
  const std::optional<LocalAttention> local = local_attention_of(place);
  return local ? local->carried : 0;
}

constexpr CompositionRule kRules[] = {
    {"combine", "joint needs the local keys themselves; list it before the other memories of the layer",
     [](const Place& p) { return p.before > 0 && options(p).combine == KnnCombine::joint; }},
    {"write", "the mixer of the layer carries nothing that entries could leave; set its carry.kind or write: produce",
     [](const Place& p) { return evicts(p) && carried_by_mixer(p) == 0; }},
    {"write", "the empty slots of carry.mask_empty: false are no tokens; use write: produce",
     [](const Place& p) { return evicts(p) && carried_by_mixer(p) > 0 && !local_attention_of(p)->masks_empty; }},
};

constexpr CompositionRule kRulesOfNewRuns[] = {
    {"write", "a run that begins with never has nothing in memory; begin with produce or evict, and resume with never",
     [](const Place& p) { return options(p).write == KnnWrite::never; }},
};

constexpr CompositionRule kRulesWithoutCarry[] = {
    {"stale.refresh", "no training step finds entries to project again; leave it out",
     [](const Place& p) { return options(p).stale.refresh > 0; }},
};

// Entries come from earlier steps: of those written before the row begins, the last carry.length, every stride-th
// token. What the cache still holds has not been evicted.
int64_t reach(const Place& place, const TargetPlace& target) {
  const KnnConfig& knn = options(place);
  if (knn.write == KnnWrite::never) return 0;
  const int64_t begin = target.position - target.t;
  const int64_t cached = evicts(place) ? std::min(begin, carried_by_mixer(place)) : 0;
  const int64_t in_memory = std::min(begin - cached, knn.carry.length * knn.stride);
  return in_memory / knn.stride < std::max<int64_t>(knn.least, 1) ? 0 : target.t + cached + in_memory;
}

// Memory is searched forward only. How many entries a row holds is not known here: as many as fit.
StepFlops flops(const Place& place, const StepShape& shape) {
  const KnnConfig& knn = options(place);
  const ModelConfig& model = place.model;
  const auto tokens = static_cast<double>(shape.rows * shape.subsequence);
  const double inner = static_cast<double>(model.heads * model.size_of_head());
  StepFlops flops;
  flops.forward = tokens * 2 * static_cast<double>(knn.carry.length) * inner;
  flops.learned = tokens * 2 * 2 * static_cast<double>(knn.top_k) * inner;
  if (knn.combine == KnnCombine::content_gate) {
    flops.learned += tokens * 2 * static_cast<double>(model.width * model.heads);
  }
  return flops;
}

}  // namespace

Mechanism knn_memory() {
  return {
      .role = Role::memory,
      .kind = "knn",
      .help = "keys and values of the document's past tokens, searched by every query (Memorizing Transformer)",
      .options = [] { return ConfigBox(KnnConfig{}); },
      .rules = kRules,
      .rules_of_new_runs = kRulesOfNewRuns,
      .rules_without_carry = kRulesWithoutCarry,
      .retrieves = true,
      .make_memory = [](const Scope& scope, const Place& place, const MixerShape& mixer) -> std::unique_ptr<Memory> {
        return std::make_unique<KnnMemory>(scope, options(place), mixer);
      },
      .reach = reach,
      .flops = flops,
      .promises =
          [](const Place& place) {
            return Promises{.exact_gradient = options(place).combine != KnnCombine::stop_forward};
          }};
}

}  // namespace quire
