// The descriptor of the DRT stack (layers/mechanism/mechanism.h).
#include <algorithm>
#include <functional>

#include "core/check.h"
#include "layers/mechanism/mechanism_list.h"
#include "layers/stacks/drt.h"

namespace quire {

namespace {

const DrtConfig& options(const Place& place) {
  return place.options.get<DrtConfig>();
}

// Returns the layers that read chunks, with their overrides.
std::vector<LayerConfig> upper_layers(const Place& place) {
  std::vector<LayerConfig> layers = place.model.layer_configs();
  layers.erase(layers.begin(), layers.begin() + lower_layers(options(place), place.model));
  return layers;
}

bool any_upper(const Place& place, const std::function<bool(const LayerConfig&)>& is) {
  const std::vector<LayerConfig> layers = upper_layers(place);
  return std::any_of(layers.begin(), layers.end(), is);
}

int64_t key_heads(const Place& place) {
  return options(place).key_heads.value_or(place.model.heads);
}

constexpr CompositionRule kRules[] = {
    {"layers", "stack.kind drt needs layers below and above the chunk encoder; use at least 2",
     [](const Place& p) { return p.model.layers < 2; }},
    {"stack.drt.lower_layers", "some layers must be left above the chunk encoder; use fewer than model.layers",
     [](const Place& p) { return p.model.layers >= 2 && lower_layers(options(p), p.model) >= p.model.layers; }},
    {"stack.drt.groups",
     "every group has equally many of the layers above the chunk encoder; use a divisor of their number",
     [](const Place& p) {
       const int64_t upper = p.model.layers - lower_layers(options(p), p.model);
       return upper > 0 && upper % options(p).groups != 0;
     }},
    {"stack.drt.key_heads",
     "each key head of chunks is shared by equally many query heads; use a divisor of model.heads "
     "and of the heads of every layer that reads chunks",
     [](const Place& p) {
       return p.model.heads % key_heads(p) != 0 ||
              any_upper(p, [&](const LayerConfig& layer) { return layer.heads % key_heads(p) != 0; });
     }},
    {"stack.drt.nearest", "no chunk is that far back; use at most stack.drt.carry.length, or max_distance",
     [](const Place& p) { return options(p).nearest > options(p).farthest(); }},
    {"norm.placement", "what is read of chunks is normalised together with the residual stream; use pre",
     [](const Place& p) { return p.model.norm.placement != NormPlacement::pre; }},
    {"residual", "chunks are read between the mixer and the feed-forward layer; use sequential",
     [](const Place& p) { return p.model.residual != Residual::sequential; }},
    {"mlp.kind", "stack.kind drt reads chunks before the feed-forward layer; use one",
     [](const Place& p) { return p.model.mlp.kind == MlpKind::none; }},
    {"layer_overrides",
     "the layers that read chunks need the head size of the model, norm.placement pre and a feed-forward layer; "
     "override these in lower layers only",
     [](const Place& p) {
       return any_upper(p, [&](const LayerConfig& layer) {
         return p.model.as_seen_by(layer).size_of_head() != p.model.size_of_head() ||
                layer.norm.placement != NormPlacement::pre || layer.mlp.kind == MlpKind::none;
       });
     }},
    {"head_size", "the chunk encoder has rotary positions; use an even number of features",
     [](const Place& p) { return p.model.size_of_head() % 2 != 0; }},
};

// Chunk n reads chunks from number n - 1 - farthest up to n - 1 - nearest.
int64_t reach(const Place& place, const TargetPlace& target) {
  const DrtConfig& drt = options(place);
  const int64_t size = drt.positions(), own = target.position / size;
  if (own - 1 - drt.nearest < 0) return 0;
  const int64_t all = target.position - std::max<int64_t>(0, own - 1 - drt.farthest()) * size;
  return drt.carry.in_training ? all : std::min(all, target.t);
}

// The encoder, the projections of chunks and of what upper layers read, K chunks of S keys for each query of an upper
// layer, and scores with all chunks.
StepFlops flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const DrtConfig& drt = options(place);
  const auto e = static_cast<double>(model.width);
  const auto inner = static_cast<double>(model.heads * model.size_of_head());
  const auto key_inner = static_cast<double>(key_heads(place) * model.size_of_head());
  const auto hidden = static_cast<double>(model.mlp.hidden);
  const auto positions = static_cast<double>(shape.rows * shape.subsequence);
  const double mlp = static_cast<double>(model.mlp.projections()) * e * hidden;
  const double encoder = 4 * e * inner + 2 * static_cast<double>(drt.positions()) * inner + mlp;
  double readers = 0;
  for (const LayerConfig& layer : upper_layers(place)) {
    const auto read = static_cast<double>(layer.heads * model.size_of_head());
    readers += (drt.out_projection ? 2 : 1) * e * read + 2 * static_cast<double>(drt.top_k * drt.chunk) * read;
  }
  const double chunks = positions / static_cast<double>(drt.positions());
  const double candidates = static_cast<double>(shape.subsequence) / static_cast<double>(drt.positions()) / 2;
  StepFlops flops;
  // Scores that are given come from the host, and landmarks then give none unless they weigh.
  const bool landmarks = !drt.gives_scores();
  flops.learned = 2 * (positions * (static_cast<double>(drt.encoder_layers) * encoder + 2 * e * key_inner + readers) +
                       (landmarks ? static_cast<double>(drt.groups) * chunks * candidates * e : 0));
  if (drt.carry.in_training && landmarks) {
    flops.forward = 2 * static_cast<double>(drt.groups) * chunks * static_cast<double>(drt.carry.length) * e;
  }
  return flops;
}

}  // namespace

Mechanism drt_stack() {
  return {.role = Role::stack,
          .kind = "drt",
          .help = "upper layers read earlier chunks that landmarks choose, with gradients into them (DRT)",
          .options = [] { return ConfigBox(DrtConfig{}); },
          .rules = kRules,
          .retrieves = true,
          .make_stack = [](const Scope& scope, const Place& place) -> std::unique_ptr<Stack> {
            return std::make_unique<DrtStack>(scope, place);
          },
          .alignment = [](const Place& place) { return options(place).positions(); },
          .insertion = [](const Place& place) { return Insertion{.period = options(place).chunk, .ids = 1}; },
          .grain = [](const Place& place) { return options(place).positions(); },
          .reading =
              [](const ReadingPlace& place, Purpose purpose) {
                auto& drt = place.options.get<DrtConfig>();
                if (purpose == Purpose::generate && drt.scores == ChunkScores::file) {
                  fail(ErrorKind::config, "model.stack.drt.scores: file: {} has no scores of what is generated",
                       *drt.scores_file);
                }
                bool& carry = drt.carry.in_training;
                const bool trained_so = carry;
                carry = true;
                return trained_so;
              },
          .reach = reach,
          .flops = flops,
          .promises =
              [](const Place& place) {
                const DrtConfig& drt = options(place);
                return Promises{.exact_gradient = drt.scores != ChunkScores::fixed,
                                .split_invariant = drt.carry.in_training && drt.scores != ChunkScores::random &&
                                                   !rounds(drt.carry.dtype)};
              }};
}

}  // namespace quire
