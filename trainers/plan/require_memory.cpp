// Checks whether a run fits into the memory of its device, and names the settings that would make it smaller.

#include "core/check.h"
#include "kernels/backend.h"
#include "trainers/plan/plan.h"

namespace quire {

namespace {

// One class of memory of a run, and the setting that makes it smaller.
struct MemoryClass {
  const char* name;
  int64_t bytes;
  std::string remedy;
};

std::vector<MemoryClass> memory_classes(const Plan& plan, const RunConfig& config) {
  const bool whole = config.model.recompute == Recompute::none;
  const std::string activations = plan.rows > config.data.accumulate
                                      ? fmt::format("data.accumulate above {}", config.data.accumulate)
                                      : "a shorter data.subsequence";
  return {
      {"weights", plan.weights, "fewer model.layers or a smaller model.width"},
      {"gradients", plan.gradients, "fewer model.layers or a smaller model.width"},
      {"moments", plan.moments,
       config.optimizer.kind != OptimizerKind::adafactor ? "optimizer.kind: adafactor" : "a smaller model"},
      {"average", plan.average, "no optimizer.ema"},
      {"state", plan.state, "shorter caches and memories, or fewer data.rows"},
      {"activations", plan.activations + plan.free_blocks, (whole ? "model.recompute: blocks, or " : "") + activations},
      // The evaluation counts only the part that exceeds the activations, whose place it takes.
      {"evaluation", std::max<int64_t>(0, plan.evaluation - plan.activations),
       "fewer evaluate.rows, or evaluate.every: 0 and quire eval of checkpoints"},
      {"workspace", plan.workspace, "fewer data.rows"}};
}

std::string size_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes < 1'000'000'000 ? fmt::format("{:.0f} MB", value / 1e6) : fmt::format("{:.1f} GB", value / 1e9);
}

}  // namespace

void require_memory(const Plan& plan, const RunConfig& config, int64_t available, const std::string& where) {
  const int64_t needed = plan.on_gpu();
  if (needed <= available) return;
  const std::vector<MemoryClass> classes = memory_classes(plan, config);
  std::string parts;
  const MemoryClass* largest = &classes.front();
  for (const MemoryClass& part : classes) {
    if (part.bytes > largest->bytes) largest = &part;
    if (part.bytes > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.name, size_text(part.bytes));
  }
  fail(ErrorKind::memory, "this run needs {} but {} has {} for it: {}. What would help most: {}", size_text(needed),
       where, size_text(available), parts.c_str(), largest->remedy);
}

void require_memory(const RunConfig& config, const Machine& machine, int threads, const Ranks& ranks) {
  const DeviceBackend::Memory memory = device_backend(machine.device.kind).memory();
  // The host can reclaim memory from other programs' caches, so its total counts; a GPU only has its free memory.
  const bool gpu = machine.device.kind == DeviceKind::cuda;
  if (memory.total == 0) return;
  const int sharing = gpu ? 1 : ranks.host_size();  // every rank has its own GPU
  const std::string where = gpu            ? machine.backend
                            : sharing == 1 ? std::string("this machine")
                                           : fmt::format("this machine, for each of its {} ranks,", sharing);
  // Ranks beyond the number of rows take no more memory than the others.
  const int64_t planned = std::min<int64_t>(ranks.size(), config.data.rows);
  require_memory(make_plan(config, planned, threads), config, (gpu ? memory.free : memory.total) / sharing, where);
}

}  // namespace quire
