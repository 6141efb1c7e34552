// The descriptor of landmark attention (layers/mechanism/mechanism.h).
#include <algorithm>

#include "core/check.h"
#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/landmark_heads.h"
#include "layers/model/surroundings.h"

namespace quire {

namespace {

const LandmarkConfig& options(const Place& place) {
  return place.options.get<LandmarkConfig>();
}

constexpr CompositionRule kRules[] = {
    {"position", "landmark moves blocks to other positions, which only rope can follow; use rope or none",
     [](const Place& p) { return p.layer.position.kind != Position::rope && p.layer.position.kind != Position::none; }},
    {"dropout.attention", "landmark drops whole blocks; use attention.landmark.group_dropout",
     [](const Place& p) { return p.model.dropout.attention > 0; }},
    {"attention.landmark.jump", "only rotary positions can jump; use position.kind: rope or leave jump at 1",
     [](const Place& p) { return p.layer.position.kind == Position::none && options(p).jump > 1; }},
};

constexpr CompositionRule kRulesWithoutCarry[] = {
    {"attention.landmark.carry.in_training",
     "no training step finds blocks of an earlier one, and evaluation reads them anyway; leave it out",
     [](const Place& p) { return options(p).carry.in_training; }},
};

int64_t reach(const Place& place, const TargetPlace& target) {
  const LandmarkConfig& landmark = options(place);
  if (!landmark.carry.in_training) return target.t;
  const int64_t before = target.position - target.t;
  const int64_t tail = before % landmark.period();
  const int64_t stored = landmark.top_k > 0 ? landmark.carry.length * landmark.period() : 0;
  return target.t + std::min(before, tail + stored);
}

// A query sees its block, the landmarks before it and, through them, all tokens of the subsequence before it; of what
// is stored, all landmarks and top_k blocks.
StepFlops flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const LandmarkConfig& landmark = options(place);
  const auto tokens = static_cast<double>(shape.rows * shape.subsequence);
  const auto e = static_cast<double>(model.width);
  const double inner = static_cast<double>(model.heads * model.size_of_head());
  const double key_inner = static_cast<double>(model.heads_of_keys() * model.size_of_head());
  double seen = static_cast<double>(shape.subsequence + 1) / 2;
  StepFlops flops;
  if (landmark.carry.in_training) {
    seen += static_cast<double>(landmark.top_k * landmark.period());
    flops.forward = tokens * 2 * static_cast<double>(landmark.carry.length) * inner;
  }
  flops.learned = tokens * 2 * (2 * e * inner + 2 * e * key_inner + seen * 2 * inner);
  return flops;
}

// With selection: head the queries of a subsequence choose together, so that an early one reads what later ones prefer.
Promises promises(const Place& place) {
  const LandmarkConfig& landmark = options(place);
  return {.causal = !(landmark.carry.in_training && landmark.selection == BlockSelection::head)};
}

// Blocks are stored and read, unless no landmark has learnt to find them.
bool read(const ReadingPlace& place, Purpose purpose) {
  auto& landmark = place.options.get<LandmarkConfig>();
  if (landmark.ignore_landmarks) {
    if (purpose == Purpose::generate) {
      fail(ErrorKind::config,
           "model.attention.landmark.ignore_landmarks: true carries nothing from one token that is generated to the "
           "next; such a model can be evaluated only");
    }
    return true;
  }
  const bool trained_so = landmark.carry.in_training;
  landmark.carry.in_training = true;
  return trained_so;
}

}  // namespace

Mechanism landmark_mixer() {
  return {
      .role = Role::mixer,
      .kind = "landmark",
      .help = "blocks of tokens, each found through a landmark token behind it (Landmark Attention)",
      .options = [] { return ConfigBox(LandmarkConfig{}); },
      .rules = kRules,
      .rules_without_carry = kRulesWithoutCarry,
      .retrieves = true,
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<ProjectedHeads<LandmarkHeads>>(
            scope, place.model, options(place), HeadShape::of(place.model), place.layer.position.kind,
            place.layer.position.rope, around.tables, Initialization(place.model).matrix(place.model.size_of_head()));
      },
      .insertion =
          [](const Place& place) {
            return Insertion{.period = options(place).block, .ids = 1, .predicted = options(place).in_loss};
          },
      .grain = [](const Place& place) { return options(place).period(); },
      .reading = read,
      .reach = reach,
      .flops = flops,
      .promises = promises};
}

}  // namespace quire
