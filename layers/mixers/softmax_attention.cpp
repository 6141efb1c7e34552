#include "layers/mixers/softmax_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "autograd/functions/basic.h"
#include "autograd/functions/rotary.h"
#include "core/check.h"
#include "layers/mechanism/mechanism_registry.h"
#include "layers/pass/visibility.h"
#include "layers/position/rope_frequencies.h"

namespace quire {

namespace {

// Empty, or what in the configuration keeps cuDNN from the attention of a layer.
std::string why_not_cudnn(const Place& place, const SoftmaxConfig& config) {
  const Position position = place.layer.position.kind;
  if (position != Position::rope && position != Position::none) {
    return "it has no position terms; use position.kind: rope or none";
  }
  if (!config.attend_self) return "attend_self: false keeps a token from its own key, which it always shows";
  if (place.model.dropout.attention > 0) return "dropout.attention draws other random numbers there; set it to 0";
  return "";
}

}  // namespace

SoftmaxAttention::SoftmaxAttention(const Scope& scope, const Place& place, const Surroundings& around)
    : config_(place.options.get<SoftmaxConfig>()),
      position_(place.layer.position),
      width_(place.model.width),
      heads_(place.model.heads),
      key_heads_(place.model.heads_of_keys()),
      head_size_(place.model.size_of_head()),
      frequencies_(rope_frequencies(position_.rope, position_.rope.dims.value_or(head_size_))),
      scale_(config_.scale_of_logits(head_size_) * rope_logit_factor(position_)),
      dropout_(place.model.dropout.attention),
      random_scope_(hash_scope(scope.path() + ".dropout")),
      projections_(scope, place, config_),
      position_terms_(scope, place.model, place.layer, around.tables),
      tables_(around.tables) {
  if (config_.qk_norm) head_scale_ = scope.param("scale", {heads_}, Initializer::constant(1));
  if (config_.carry.kind != CarryKind::none) {
    const LogGroupId cache =
        scope.state_logs("cache", config_.carried(), {.filled_with_zeros = !config_.carry.mask_empty});
    if (config_.carry.kind == CarryKind::kv) {
      cached_keys_ = scope.state_log(cache, "keys", {key_heads_, head_size_}, stored_type(config_.carry.dtype));
      cached_values_ = scope.state_log(cache, "values", {key_heads_, head_size_}, stored_type(config_.carry.dtype));
    } else {
      cached_inputs_ = scope.state_log(cache, "hidden", {width_}, stored_type(config_.carry.dtype));
    }
  }
  const MixerShape shape{.width = width_, .heads = heads_, .key_heads = key_heads_, .head_size = head_size_};
  for (size_t i = 0; i < around.memories.size(); ++i) {
    const KindConfig& memory = around.memories[i].mechanism;
    const Place beside{place.model, place.layer, memory.options, place.index};
    memories_.push_back(mechanism(Role::memory, memory.kind)
                            .make_memory(scope.child("memory", static_cast<int64_t>(i)), beside, shape));
  }
  declare_call(scope, place, around);
}

void SoftmaxAttention::declare_call(const Scope& scope, const Place& place, const Surroundings& around) const {
  AttentionCall call{.layer = place.index,
                     .implementation = config_.implementation,
                     .problem = {.carried = std::min(config_.carried(), config_.reach().value_or(config_.carried())),
                                 .heads = heads_,
                                 .kv_heads = key_heads_,
                                 .size = head_size_,
                                 .value_size = head_size_,
                                 .window = config_.reach()},
                     .why_not_cudnn = why_not_cudnn(place, config_),
                     .key = "attention.softmax.implementation"};
  for (size_t i = 0; i < memories_.size(); ++i) {
    if (!memories_[i]->joins_attention() || !call.why_not_cudnn.empty()) continue;
    call.why_not_cudnn = fmt::format("a memory of kind {} joins its attention", around.memories[i].mechanism.kind);
  }
  scope.attention_call(call);
}

// Positions count from the beginning of the subsequence, carried keys stand at -1, -2, ...: angles stay small however
// long a document is. Only differences matter, so a document that begins inside the row needs no count of its own.
void SoftmaxAttention::rotate(Tape& tape, AttentionVariables& x, const Tensor& cache_head) const {
  const Tensor& q = x.q.value();
  const int64_t before = x.cache_k.defined() ? x.cache_k.dim(1) : 0;
  ops::RotaryInputs settings;
  settings.table = tables_->rotary(before, q.dim(1), frequencies_, wide_type(q.dtype()), q.device());
  settings.origin = before;
  settings.interleaved = position_.rope.layout == RopeLayout::interleaved;
  x.q = rotary(tape, x.q, settings);
  x.k = rotary(tape, x.k, settings);
  if (before == 0) return;
  settings.head = cache_head;
  x.cache_k = rotary(tape, x.cache_k, settings);
}

// Adds what memories need beyond queries, keys and values.
void SoftmaxAttention::describe(const Forward& f, MixerTensors& mixer, const CarriedInputs& inputs) const {
  mixer.scaled_q = config_.qk_norm ? scale_heads(f.tape, mixer.q, head_scale_) : mixer.q;
  if (scale_ != 1) mixer.scaled_q = scale(f.tape, mixer.scaled_q, scale_);
  mixer.project = [this](const Tensor& z) {
    Tape tape(false);
    const auto [k, v] = projections_.keys_and_values(tape, Variable::constant(z));
    return std::pair{k.value(), v.value()};
  };
  if (inputs.z.defined()) {
    mixer.max_carried = inputs.z.dim(1);
    mixer.carried_length = inputs.length;
    mixer.carried = [z = inputs.z.value(), project = mixer.project] { return project(z); };
  } else if (cached_keys_.defined()) {
    mixer.max_carried = config_.carried();
    mixer.carried_length = f.state.initial_lengths(cached_keys_.group);
    mixer.carried = [this, state = f.state] {
      return std::pair{state.gather(cached_keys_), state.gather(cached_values_)};
    };
  }
}

SoftmaxAttention::CarriedInputs SoftmaxAttention::carried_inputs(const Forward& f, const PartInput& input) const {
  if (!cached_inputs_.defined()) return {};
  CarriedInputs carried{Variable::constant(f.state.gather(cached_inputs_)),
                        f.state.initial_lengths(cached_inputs_.group)};
  // States are stored before the normalisation, which is repeated with the current parameters each time they are read.
  if (f.write_state) f.state.append(cached_inputs_, input.x.value());
  if (input.norm != nullptr) carried.z = (*input.norm)(f.tape, carried.z);
  return carried;
}

// This is a copy, because memories that continue this softmax use the kernels of this program.
ops::AttentionInputs SoftmaxAttention::with_kernels(const Forward& f, ops::AttentionInputs settings) const {
  const bool asked = config_.implementation == AttentionImplementation::cudnn;
  if (f.attention == nullptr || config_.implementation == AttentionImplementation::own) return settings;
  const std::optional<ops::AttentionBand> band =
      visible_band(f.batch, f.state.segments(), config_.carried(), config_.reach(), f.several_documents);
  QUIRE_CHECK(band || !asked,
              "attention.softmax.implementation: cudnn: a row holds several documents, and no plan was made for it");
  if (!band) return settings;
  settings.band = *band;
  if (asked || f.attention->find(problem_of(settings)) == ops::AttentionKernels::cudnn) {
    settings.kernels = ops::AttentionKernels::cudnn;
    if (f.several_documents) settings.sequences = visible_sequences(f);
  }
  return settings;
}

Variable SoftmaxAttention::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const CarriedInputs carried_inputs = this->carried_inputs(f, input);
  const Variable z = input.normalised(tape);
  const int64_t rows = z.dim(0);
  const int64_t tokens = z.dim(1);
  const Device device = z.value().device();

  AttentionVariables x;
  x.q = projections_.queries(tape, z);
  std::tie(x.k, x.v) = projections_.keys_and_values(tape, z);
  MixerTensors mixer{.z = z, .q = x.q, .scaled_q = {}, .k = x.k, .v = x.v, .local = {}};

  ops::AttentionInputs settings;
  std::vector<int64_t> initial(f.state.segments().size(), 0);  // keys that each segment begins with
  int64_t slots = 0;
  if (carried_inputs.z.defined()) {
    // Carried states are constant, the projections are not: W_k and W_v learn from them too.
    slots = carried_inputs.z.dim(1);
    std::tie(x.cache_k, x.cache_v) = projections_.keys_and_values(tape, carried_inputs.z);
    settings.cache_head = Tensor::zeros({rows}, DType::i32, device);  // newest in the last slot
    initial = carried_inputs.length;
  } else if (cached_keys_.defined()) {
    slots = config_.carried();
    initial = f.state.initial_lengths(cached_keys_.group);
    x.cache_k = Variable::constant(f.state.ring(cached_keys_));
    x.cache_v = Variable::constant(f.state.ring(cached_values_));
    settings.cache_head = f.state.ring_head(cached_keys_.group);
  }
  settings.first_visible = first_visible(f, initial, config_.reach());
  settings.attend_self = config_.attend_self;
  settings.dropout = f.training ? dropout_ : 0;
  settings.key = f.key;
  settings.scope = random_scope_;
  settings.first_row = f.batch.first_row;
  settings.scale = scale_;

  int64_t reach = tokens + slots;  // entries of a table by distance
  if (const auto largest = config_.reach()) reach = std::min(reach, *largest + 1);
  position_terms_.add(f, x, reach);
  if (position_.kind == Position::rope) rotate(tape, x, settings.cache_head);
  if (config_.qk_norm) {
    // (q.k + bias) |a_h|: the scale is applied after the bias is added.
    x.q = scale_heads(tape, x.q, head_scale_);
    if (x.bias.defined()) {
      x.bias =
          reshape(tape, scale_heads(tape, reshape(tape, x.bias, {1, heads_, reach}), head_scale_), {heads_, reach});
    }
  }
  const bool joined = !memories_.empty() && memories_.front()->joins_attention();
  Variable mixed = joined ? Variable() : attention(tape, x, with_kernels(f, attention_inputs(x, settings)));
  if (cached_keys_.defined() && f.write_state) {
    f.state.append(cached_keys_, mixer.k.value());
    f.state.append(cached_values_, mixer.v.value());
  }
  if (!memories_.empty()) {
    mixer.attention = &x;
    mixer.settings = &settings;
    describe(f, mixer, carried_inputs);
    for (const std::unique_ptr<Memory>& memory : memories_) {
      mixer.local = mixed;
      mixed = memory->combine(f, mixer);
    }
  }
  return projections_.out(tape, mixed, input.residual);
}

}  // namespace quire
