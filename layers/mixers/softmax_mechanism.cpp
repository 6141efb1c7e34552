// The descriptor of softmax attention (layers/mechanism/mechanism.h).
#include <algorithm>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mixers/softmax_attention.h"

namespace quire {

namespace {

const SoftmaxConfig& options(const Place& place) {
  return place.options.get<SoftmaxConfig>();
}

constexpr CompositionRule kRules[] = {
    {"attention.softmax.carry.length", "set carry.length or window: what is carried needs a length",
     [](const Place& p) { return options(p).carry.kind != CarryKind::none && options(p).carried() == 0; }},
    {"attention.softmax.carry.length",
     "a length has no meaning where nothing is carried; set carry.kind to hidden or kv, or write "
     "length: none",
     [](const Place& p) { return options(p).carry.kind == CarryKind::none && options(p).carry.length.has_value(); }},
    {"attention.softmax.carry.length", "more is carried than the window: tokens beyond it are never seen",
     [](const Place& p) {
       return options(p).carry.kind != CarryKind::none && options(p).window.has_value() &&
              options(p).carried() > *options(p).window;
     }},
    {"attention.softmax.carry.dtype", "a dtype has no meaning where nothing is carried; set carry.kind to hidden or kv",
     [](const Place& p) {
       return options(p).carry.kind == CarryKind::none && options(p).carry.dtype != StateType::automatic;
     }},
    {"attention.softmax.same_length", "same_length counts the keys that are carried; set carry.kind to hidden or kv",
     [](const Place& p) { return options(p).same_length && options(p).carry.kind == CarryKind::none; }},
    {"attention.softmax.same_length", "same_length and window both say how far a token sees; give one of them",
     [](const Place& p) { return options(p).same_length && options(p).window.has_value(); }},
    {"attention.softmax.same_length", "same_length counts the token itself; it does not go with attend_self: false",
     [](const Place& p) { return options(p).same_length && !options(p).attend_self; }},
    {"attention.softmax.carry.mask_empty", "false needs carry.kind: kv; there are no empty key slots otherwise",
     [](const Place& p) { return !options(p).carry.mask_empty && options(p).carry.kind != CarryKind::kv; }},
    {"attention.softmax.qk_norm",
     "normalised queries and keys do not go with position xl, which adds terms to the raw query",
     [](const Place& p) { return options(p).qk_norm && p.layer.position.kind == Position::xl; }},
    {"attention.softmax.rms_qk_norm", "qk_norm and rms_qk_norm both normalise queries and keys; use one of them",
     [](const Place& p) { return options(p).qk_norm && options(p).rms_qk_norm != RmsQkNorm::none; }},
    {"attention.softmax.scale", "qk_norm multiplies the logits by a learned scale; leave one of the two out",
     [](const Place& p) { return options(p).qk_norm && options(p).scale.has_value(); }},
};

// Tokens that are visible at distances up to the window, of the row and of what the cache carries into it.
int64_t reach(const Place& place, const TargetPlace& target) {
  const SoftmaxConfig& attention = options(place);
  const int64_t reachable = target.t + std::min(attention.carried(), target.position - target.t);
  return std::min(reachable, attention.reach().value_or(reachable));
}

StepFlops flops(const Place& place, const StepShape& shape) {
  const ModelConfig& model = place.model;
  const SoftmaxConfig& attention = options(place);
  const auto e = static_cast<double>(model.width);
  const auto rows = static_cast<double>(shape.rows);
  const double inner = static_cast<double>(model.heads * model.size_of_head());
  const double key_inner = static_cast<double>(model.heads_of_keys() * model.size_of_head());
  const int64_t carried = attention.carried();
  double sum = rows * static_cast<double>(shape.subsequence) * 2 * (2 * e * inner + 2 * e * key_inner);
  if (attention.carry.kind == CarryKind::hidden) sum += rows * static_cast<double>(carried) * 2 * 2 * e * key_inner;
  double pairs = 0;  // query and key, one row
  for (int64_t t = 0; t < shape.subsequence; ++t) {
    const int64_t before = t + carried;
    pairs +=
        static_cast<double>(std::min(before, attention.reach().value_or(before)) + (attention.attend_self ? 1 : 0));
  }
  const bool relative = place.layer.position.kind == Position::xl;
  sum += rows * pairs * 2 * (relative ? 3 : 2) * inner;  // q.k, p v, and q.r
  if (relative) {
    const int64_t max_reach = shape.subsequence + carried;
    sum += static_cast<double>(std::min(max_reach, attention.reach().value_or(max_reach) + 1)) * 2 * e * inner;
  }
  return {.learned = sum};
}

// Generation keeps keys and values, which with fixed weights is the same as carried hidden states and saves their
// projection at every token. A layer without a cache keeps what its window, or one subsequence, would have shown it.
bool read(const ReadingPlace& place, Purpose purpose) {
  if (purpose == Purpose::evaluate) return true;
  auto& attention = place.options.get<SoftmaxConfig>();
  if (attention.carry.kind == CarryKind::hidden) {
    attention.carry.kind = CarryKind::kv;
    // Rounded states give other keys than rounded keys: full precision is nearest to both.
    attention.carry.dtype = StateType::automatic;
  }
  if (attention.carry.kind != CarryKind::none) return true;
  const int64_t seen = attention.window.value_or(place.subsequence - 1);
  if (seen < 1) return true;
  attention.carry.kind = CarryKind::kv;
  attention.carry.length = seen;
  // The model never met longer distances.
  attention.window = seen;
  // In training the first tokens of a subsequence see less.
  return false;
}

Promises promises(const Place& place) {
  const SoftmaxConfig& attention = options(place);
  const bool carries =
      attention.carry.kind != CarryKind::none && attention.carry.mask_empty && !rounds(attention.carry.dtype);
  return {.split_invariant = carries && attention.reach() && *attention.reach() <= attention.carried(),
          .full_attention = carries && !attention.reach() ? attention.carried() : 0};
}

}  // namespace

Mechanism softmax_mixer() {
  return {
      .role = Role::mixer,
      .kind = "softmax",
      .help = "attention to the keys of the subsequence and of what is carried, within the window",
      .options = [] { return ConfigBox(SoftmaxConfig{}); },
      .rules = kRules,
      .make_mixer = [](const Scope& scope, const Place& place, const Surroundings& around) -> std::unique_ptr<Part> {
        return std::make_unique<SoftmaxAttention>(scope, place, around);
      },
      .local_attention =
          [](const Place& place) {
            const SoftmaxConfig& softmax = options(place);
            return std::optional(LocalAttention{.carried = softmax.carried(), .masks_empty = softmax.carry.mask_empty});
          },
      .reading = read,
      .reach = reach,
      .flops = flops,
      .promises = promises};
}

}  // namespace quire
