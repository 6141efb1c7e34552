#include "trainers/setup/attention_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/check.h"
#include "layers/model/attention_calls.h"

namespace quire {

namespace {

// Returns the rows of the largest pass of a rank: rows are cut into data.accumulate blocks.
int64_t rows_of_pass(const RunConfig& config, const RankPlace& place) {
  const int64_t rows = config.data.rows * (place.rank + 1) / place.ranks - config.data.rows * place.rank / place.ranks;
  const int64_t blocks = std::max<int64_t>(1, std::min(config.data.accumulate, rows));
  return (rows + blocks - 1) / blocks;
}

std::vector<AttentionCall> calls_of(const RunConfig& config, DType type, const RankPlace& place) {
  return attention_calls(config.model, rows_of_pass(config, place), config.data.subsequence,
                         config.data.pack == Pack::concat, type);
}

// Returns why cuDNN cannot compute the call of a layer here; empty when it can.
std::string why_not(const AttentionCall& call, const Machine& machine) {
  if (!call.why_not_cudnn.empty()) return call.why_not_cudnn;
  if (machine.device.kind != DeviceKind::cuda) return "the run computes on no GPU";
  return why_no_cudnn_plans(call.problem);
}

}  // namespace

std::string attention_heading(Device device) {
  return fmt::format("attention with cuDNN {} on {}", cudnn_version(), device_backend(device.kind).name());
}

void require_attention(const RunConfig& config, const Machine& machine, const RankPlace& place) {
  for (const AttentionCall& call : calls_of(config, machine.dtype, place)) {
    if (call.implementation != AttentionImplementation::cudnn) continue;
    const std::string why = why_not(call, machine);
    if (!why.empty()) {
      fail(ErrorKind::config, "model.{}: cudnn cannot compute layer {} ({}): {}; auto takes it where it can", call.key,
           call.layer, call.problem.to_string(), why);
    }
  }
}

std::vector<std::string> choose_attention(TrainingState& training, const RunConfig& config, const Machine& machine,
                                          Ranks& ranks) {
  const std::vector<AttentionCall> calls = calls_of(config, machine.dtype, {ranks.rank(), ranks.size()});
  std::vector<std::string> lines;
  const auto is_own = [](const AttentionCall& call) { return call.implementation == AttentionImplementation::own; };
  if (std::all_of(calls.begin(), calls.end(), is_own)) return lines;
  std::string text;
  const std::string heading = attention_heading(machine.device);
  ranks.on_root([&] {
    std::map<std::string, int64_t> layers;  // number of layers per message
    for (const AttentionCall& call : calls) {
      if (call.implementation == AttentionImplementation::own) continue;
      std::string said;
      if (call.implementation == AttentionImplementation::cudnn) {
        said = "cudnn, as asked for";
      } else if (const auto kept = training.attention.find(call.problem)) {
        said = *kept == ops::AttentionKernels::cudnn ? "cudnn" : "own";
      } else {
        const std::string why = why_not(call, machine);
        if (machine.device.kind == DeviceKind::cuda && call.why_not_cudnn.empty()) {
          const auto chosen =
              why.empty() ? measure_attention(call.problem, machine.device) : ops::AttentionKernels::own;
          training.attention.set(call.problem, chosen);
          said = chosen == ops::AttentionKernels::cudnn ? "cudnn, measured" : "own";
        } else {
          said = "own";
        }
        if (said == "own") said += why.empty() ? ", measured" : fmt::format(", since cuDNN cannot: {}", why);
      }
      ++layers[fmt::format("{}: {}", call.problem.to_string(), said)];
    }
    for (const auto& [said, count] : layers) {
      lines.push_back(fmt::format("attention of {} {}: {}", count, count == 1 ? "layer" : "layers", said));
    }
    text = training.attention.to_text(heading);
  });
  const std::string chosen = ranks.broadcast_from_root(text);
  // Another GPU of the run may not be able to build what root could; this finds it now.
  ranks.on_all([&] {
    if (!chosen.empty() && !training.attention.add(chosen, heading)) {
      fail(ErrorKind::config, "model.{}: auto: this rank has another GPU or cuDNN than rank 0 ({}); use own or cudnn",
           calls.front().key, heading);
    }
    for (const AttentionCall& call : calls) {
      if (call.implementation != AttentionImplementation::automatic || !call.why_not_cudnn.empty()) continue;
      if (training.attention.find(call.problem) != ops::AttentionKernels::cudnn) continue;
      const std::string why = why_no_cudnn_plans(call.problem);
      if (!why.empty()) {
        fail(ErrorKind::config, "model.{}: auto chose cuDNN on rank 0, and here: {}; use own", call.key, why);
      }
    }
  });
  return lines;
}

bool choose_cudnn_where_it_may_be(AttentionChoices& choices, const RunConfig& config, DType type,
                                  const RankPlace& place) {
  bool any = false;
  for (const AttentionCall& call : calls_of(config, type, place)) {
    if (call.implementation != AttentionImplementation::automatic || !call.why_not_cudnn.empty()) continue;
    if (!may_be_in_cudnn(call.problem)) continue;
    choices.set(call.problem, ops::AttentionKernels::cudnn);
    any = true;
  }
  return any;
}

}  // namespace quire
