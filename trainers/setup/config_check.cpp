// Checks for contradictions between the sections of a run's configuration.
#include <fmt/format.h>

#include "layers/model/attention_calls.h"
#include "layers/model/composition.h"
#include "layers/model/model_mechanisms.h"
#include "trainers/optimizer/parameter_groups.h"
#include "trainers/setup/config.h"
#include "trainers/setup/evaluation_config.h"
#include "trainers/setup/model.h"

namespace quire {

namespace {

std::string first_state(const Network& network) {
  const StateLayout& state = network.declared.state;
  if (!state.logs().empty()) return state.logs().front().name;
  return state.registers().empty() ? "" : state.registers().front().name;
}

// Returns the part of a model that owns a state of this name, "blocks.0.attention.memory.0.keys".
std::string owner_of(const ModelConfig& model, const std::string& state) {
  const std::string in_layer = "blocks.";
  if (!state.starts_with(in_layer)) return "stack.kind " + model.stack.mechanism.kind;
  const int64_t layer = std::stoll(state.substr(in_layer.size()));
  if (state.find(".memory.") != std::string::npos) return fmt::format("a memory of layer {}", layer);
  const LayerConfig of_layer = model.layer_configs()[static_cast<size_t>(layer)];
  return fmt::format("attention.kind {} of layer {}", of_layer.attention.mechanism.kind, layer);
}

// Learned positions count from the beginning of a subsequence, so that nothing of an earlier one may be read beside
// them.
void check_learned_positions(const RunConfig& config, const Network& trained, ConfigChecker& c) {
  const std::optional<int64_t> positions = config.model.embedding.learned_positions;
  if (!positions) return;
  const int64_t subsequence = config.data.subsequence;
  c.require(subsequence <= *positions, "model.embedding.learned_positions",
            fmt::format("{} positions are less than the {} of data.subsequence", *positions, subsequence));
  ParameterStore store;
  const Network read(store, reading_of(config.model, subsequence, Purpose::evaluate).model, 2, DType::f32);
  const std::string state = first_state(trained).empty() ? first_state(read) : first_state(trained);
  c.require(
      state.empty(), "model.embedding.learned_positions",
      state.empty()
          ? ""
          : fmt::format("a learned position is one in the subsequence, and {} carries state from one to the "
                        "next; leave learned_positions out and set position.kind, or use what carries "
                        "nothing: attention.kind {} without a carry, shifted_share 0, no memory, "
                        "stack.kind {}",
                        owner_of(config.model, state), KindConfig(Role::mixer).kind, KindConfig(Role::stack).kind));
}

}  // namespace

void RunConfig::check(ConfigChecker& c) const {
  if (data.pack == Pack::concat) {
    visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
      const std::optional<LocalAttention> local = mechanism.local_attention(place);
      c.require(!local || local->masks_empty, "data.pack",
                "concat cannot be combined with mask_empty: false of a mixer, which needs empty slots at the "
                "start of every document; use pad");
    });
  }
  if (data.sampling == Sampling::windows) {
    const std::optional<RuleFault> fault = find_rule_fault(model, &Mechanism::rules_without_carry);
    c.require(!fault, fault ? join_key("model", fault->key) : "",
              fmt::format("has no effect with data.sampling: windows, where rows carry nothing: {}",
                          fault ? fault->message : ""));
  }
  for (const AttentionCall& call :
       attention_calls(model, data.rows, data.subsequence, data.pack == Pack::concat, DType::bf16)) {
    if (call.implementation != AttentionImplementation::cudnn) continue;
    c.require(call.why_not_cudnn.empty(), join_key("model", call.key),
              fmt::format("cudnn cannot compute layer {}: {}", call.layer, call.why_not_cudnn));
  }
  const int64_t alignment = data.pack == Pack::concat ? alignment_of(model) : 1;
  c.require(
      data.subsequence % alignment == 0, "data.subsequence",
      fmt::format("{} is not a multiple of {}, the period of the model's chunks and blocks: with data.pack: concat "
                  "documents begin at multiples of it",
                  data.subsequence, alignment));
  // The model is declared only for the names of its parameters and state, which needs neither corpus nor memory; the
  // vocabulary changes only shapes.
  ParameterStore store;
  const Network declared(store, model, 2, DType::f32);
  const std::string in_file = declared.declared.state.first_in_file();
  c.require(run.device != DeviceChoice::cuda || in_file.empty(), "model",
            fmt::format("{}: {}", in_file, kNoFilesOnGpu));
  check_learned_positions(*this, declared, c);
  c.require(!checkpoint.best || evaluate.every > 0, "checkpoint.best",
            "with evaluate.every: 0 nothing is evaluated, so no checkpoint is the best one");
  c.require(!optimizer.relative_step || schedule.kind == ScheduleKind::constant, "schedule.kind",
            "optimizer.relative_step has its own course of the learning rate; use constant");
  if (!optimizer.groups.empty()) {
    const std::optional<GroupFault> fault = find_group_fault(store, optimizer);
    if (fault) c.require(false, join_key("optimizer", fault->key), fault->message);
  }
  for (const auto& [key, value] : evaluate.set) {
    const std::string replaced = describe_replaced_key(replaced_keys(), key);
    c.require(replaced.empty(), "evaluate.set", fmt::format("{} {}", key, replaced));
    const std::string nearest = nearest_config_key(list_config_keys<RunConfig>(), key);
    const bool misspelt = !may_differ_at_evaluation(key) && nearest != key && may_differ_at_evaluation(nearest);
    c.require(may_differ_at_evaluation(key), "evaluate.set",
              misspelt ? fmt::format("there is no {}; did you mean {}?", key, nearest)
                       : fmt::format("{} cannot differ at evaluation; {} can", key, kMayDiffer));
  }
}

template class StructRef<RunConfig>;

}  // namespace quire
