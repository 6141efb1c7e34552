#include "layers/model/model_mechanisms.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "layers/mechanism/mechanism_registry.h"

namespace quire {

namespace {

const Mechanism& descriptor(const KindConfig& config) {
  return mechanism(config.role, config.kind);
}

}  // namespace

std::optional<LocalAttention> local_attention_of(const Place& place) {
  const KindConfig& mixer = place.layer.attention.mechanism;
  return descriptor(mixer).local_attention({place.model, place.layer, mixer.options, place.index});
}

void visit_mechanisms(const ModelConfig& model, const MechanismVisitor& visit) {
  const std::vector<LayerConfig> layers = model.layer_configs();
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerConfig& layer = layers[static_cast<size_t>(i)];
    const KindConfig& mixer = layer.attention.mechanism;
    const ModelConfig seen = model.as_seen_by(layer);
    const Place place{seen, layer, mixer.options, i};
    visit(descriptor(mixer), place, "");
    int64_t before = 0;
    for (size_t m = 0; m < model.memory.size(); ++m) {
      const MemoryConfig& memory = model.memory[m];
      for (const int64_t of : memory.layers) {
        if (model.layer_index(of) != i) continue;
        const Place beside{seen, layer, memory.mechanism.options, i, before++};
        visit(descriptor(memory.mechanism), beside, fmt::format("memory.{}", m));
      }
    }
  }
  const KindConfig& stack = model.stack.mechanism;
  visit(descriptor(stack), {model, layers.front(), stack.options}, "");
}

int64_t alignment_of(const ModelConfig& model) {
  int64_t alignment = 1;
  visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
    alignment = std::lcm(alignment, mechanism.alignment(place));
  });
  return alignment;
}

Insertion insertion_of(const ModelConfig& model) {
  Insertion insertion;
  visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
    const Insertion inserted = mechanism.insertion(place);
    if (!inserted.any()) return;
    QUIRE_CHECK(inserted.period > 0, "{}: inserts a token after every {} tokens", mechanism.kind, inserted.period);
    insertion = inserted;
  });
  return insertion;
}

int64_t grain_of(const ModelConfig& model) {
  int64_t grain = 1;
  visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
    grain = std::lcm(grain, mechanism.grain(place));
  });
  return grain;
}

StepFlops flops_of(const ModelConfig& model, const StepShape& shape) {
  StepFlops sum;
  visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
    const StepFlops flops = mechanism.flops(place, shape);
    sum.learned += flops.learned;
    sum.forward += flops.forward;
  });
  return sum;
}

Promises promises_of(const ModelConfig& model) {
  Promises all{.split_invariant = true, .full_attention = std::numeric_limits<int64_t>::max()};
  visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
    const Promises promises = mechanism.promises(place);
    all.exact_gradient = all.exact_gradient && promises.exact_gradient;
    all.split_invariant = all.split_invariant && promises.split_invariant;
    all.causal = all.causal && promises.causal;
    all.full_attention = std::min(all.full_attention, promises.full_attention);
  });
  return all;
}

bool retrieves(const ModelConfig& model) {
  bool any = false;
  visit_mechanisms(
      model, [&](const Mechanism& mechanism, const Place&, const std::string&) { any = any || mechanism.retrieves; });
  return any;
}

ModelReach::ModelReach(const ModelConfig& model) : model_(model) {
  visit_mechanisms(model_, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
    seen_.push_back(std::make_unique<Seen>(Seen{place.model, place.layer}));
    const Seen& seen = *seen_.back();
    // A mixer's options are part of the layer, those of others of the model.
    const ConfigBox& options = mechanism.role == Role::mixer ? seen.layer.attention.mechanism.options : place.options;
    const Place kept{seen.model, seen.layer, options, place.index, place.before};
    const bool shifted = mechanism.role != Role::stack && seen.layer.attention.shifted_features(model_.width) > 0;
    reaches_.emplace_back([&mechanism, kept, shifted](const TargetPlace& target) {
      const int64_t reach = mechanism.reach(kept, target);
      return shifted ? std::min(reach + 1, target.position) : reach;
    });
  });
}

int64_t ModelReach::operator()(const TargetPlace& target) const {
  int64_t max_reach = 0;
  for (const auto& reach : reaches_) max_reach = std::max(max_reach, reach(target));
  return max_reach;
}

ModelReading reading_of(const ModelConfig& model, int64_t subsequence, Purpose purpose) {
  ModelReading reading{model};
  std::vector<LayerConfig> layers = model.layer_configs();
  const auto ask = [&](KindConfig& config, LayerConfig& layer) {
    const ReadingPlace place{reading.model, layer, config.options, subsequence};
    reading.as_trained = descriptor(config).reading(place, purpose) && reading.as_trained;
  };
  for (LayerConfig& layer : layers) ask(layer.attention.mechanism, layer);
  for (MemoryConfig& memory : reading.model.memory) {
    for (const int64_t layer : memory.layers) {
      ask(memory.mechanism, layers[static_cast<size_t>(model.layer_index(layer))]);
    }
  }
  ask(reading.model.stack.mechanism, layers.front());
  reading.model.resolved = std::move(layers);
  return reading;
}

}  // namespace quire
