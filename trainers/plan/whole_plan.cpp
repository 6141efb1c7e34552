#include "trainers/plan/whole_plan.h"

#include <algorithm>
#include <mutex>

#include "core/check.h"
#include "kernels/backend.h"
#include "kernels/cuda_scratch.h"
#include "kernels/planned_scratch.h"
#include "layers/model/model_mechanisms.h"
#include "layers/state/state_pool.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/plan/longest_document.h"
#include "trainers/plan/random_batch.h"
#include "trainers/setup/attention_choice.h"
#include "trainers/setup/evaluation_config.h"
#include "trainers/step/step.h"

namespace quire {

namespace {

// Measured: the program with its libraries, and what a thread's kernels keep for packing and blocks.
constexpr int64_t kProgramBytes = int64_t{17} << 20;
constexpr int64_t kScratchElements = int64_t{650} << 10;
// malloc keeps at most this much of the files of a checkpoint that were built before, instead of giving it back.
constexpr int64_t kHeapBytes = int64_t{32} << 20;
// Measured: what training has beside steps. The corpus, batches that wait, the files of the run.
constexpr int64_t kTrainingBytes = int64_t{4} << 20;

// "blocks.3.attention.query.weight" belongs to "blocks"; names without a dot are parts themselves.
std::vector<Plan::Part> parts_of(const ParameterStore& store) {
  std::vector<Plan::Part> parts;
  for (const ParameterStore::Entry& entry : store.entries()) {
    const std::string part = entry.name.substr(0, entry.name.find('.'));
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const Plan::Part& p) { return p.name == part; });
    Plan::Part& to = found != parts.end() ? *found : parts.emplace_back(Plan::Part{part, 0});
    to.parameters += entry.shape.numel();
  }
  return parts;
}

// Returns the first step of a document that finds all logs full, or as full as a document of the run makes them.
int64_t late_step(const RunConfig& config, const Network& network) {
  int64_t positions = 0;
  for (const StateLayout::LogGroup& group : network.declared.state.log_groups()) {
    constexpr int64_t kMany = int64_t{1} << 30;
    positions =
        std::max(positions, group.length > kMany / group.options.grain ? kMany : group.length * group.options.grain);
  }
  const int64_t length = config.data.subsequence;
  const int64_t full = (positions + length - 1) / length;
  const std::optional<int64_t> longest = longest_document(config);
  return longest ? std::min(full, *longest / length) : full;
}

// Returns the first step, the second one, which has everything that the first one leaves behind, and steps up to the
// late one. The allocator keeps blocks of sizes that have passed; from an eighth on, logs grow by a sixteenth from step
// to step, as fast as the sizes that layers round them to.
std::vector<int64_t> steps_to_plan(int64_t late) {
  std::vector<int64_t> steps{0, 1};
  while (steps.back() < late) {
    const int64_t step = steps.back();
    steps.push_back(std::min(late, step < late / 8 ? 2 * step : step + std::max<int64_t>(1, step / 16)));
  }
  return steps;
}

int64_t moment_bytes(const ParameterStore& store, const RankPlace& place, const OptimizerConfig& config) {
  const ParameterParts parts(store, place, cut_of(config));
  return make_optimizer(store, parts, config)->bytes();
}

}  // namespace

DeviceKind planned_device(const RunSection& run) {
  if (run.device == DeviceChoice::automatic) return load_cuda().gpu.empty() ? DeviceKind::cpu : DeviceKind::cuda;
  return run.device == DeviceChoice::cuda ? DeviceKind::cuda : DeviceKind::cpu;
}

int64_t Plan::total() const {
  return step() + evaluation_blocks + checkpoint_work + kTrainingBytes;
}

int64_t Plan::on_gpu() const {
  return persistent() - program - host_state + std::max(activations, evaluation) + workspace;
}

Plan make_whole_plan(const RunConfig& config, int64_t ranks, int threads) {
  // All bytes of Device::meta are counted together. Ranks that are threads plan one after the other.
  static std::mutex planning;
  const std::lock_guard lock(planning);
  // The last rank is one of those with most rows.
  const RankPlace place{static_cast<int>(ranks - 1), static_cast<int>(ranks)};
  Ranks one;
  const int64_t vocabulary = expected_vocabulary(config);
  const DeviceKind planned = planned_device(config.run);
  const bool gpu = planned == DeviceKind::cuda;
  const PlannedScratch scratch(planned);
  const DType dtype = computing_type(config.run.precision, planned);
  const Machine machine{kMeta, dtype, "meta"};
  Allocator& allocator = device_backend(DeviceKind::meta).allocator();
  const auto peak = [&allocator] { return allocator.stats().peak_bytes; };
  allocator.trim();
  const int64_t before = allocator.stats().bytes_from_system;

  Plan plan;
  plan.vocabulary = vocabulary;
  TrainingState training(config, vocabulary, machine, place);
  plan.rows = training.last_row - training.first_row;
  DataConfig data = config.data;
  data.rows = plan.rows;
  plan.parts = parts_of(training.store);
  plan.parameters = training.store.parameter_count();
  plan.weights = training.store.values().bytes() + training.store.published_bytes();
  for (const ParameterStore::Buffer& buffer : training.store.buffers()) plan.weights += buffer.value.bytes();
  plan.gradients = training.store.gradients().bytes();
  plan.moments = training.optimizer->bytes();
  plan.average = training.average ? plan.weights : 0;
  const std::string in_file = training.network.declared.state.first_in_file();
  if (gpu && !in_file.empty()) fail(ErrorKind::config, "model: {}: {}", in_file, kNoFilesOnGpu);
  plan.state = gpu ? training.state->bytes(LogPlace::device) : training.state->bytes();
  plan.host_state = gpu ? training.state->bytes(LogPlace::host) : 0;
  plan.file_state = training.state->bytes(LogPlace::file);
  const int64_t persistent = allocator.stats().bytes_in_use;

  const std::vector<int64_t> steps = steps_to_plan(late_step(config, training.network));
  const auto make_steps = [&] {
    for (const int64_t step : steps) {
      allocator.reset_peak();
      const Batch batch = random_batch(data, vocabulary, training.network.model.insertion(), step);
      if (step > 0) training.state->assume_read(batch.position.front());
      const StepCounts begun = begin_step(training.network.model, config, batch, step + 1, step + 1);
      accumulate_gradients(
          training, config, batch, begun.counts, [](int64_t, int64_t, const LossTerms&) {}, one);
      training.optimizer->update(step + 1, config.optimizer.lr, Tensor::empty({2}, DType::f64, kMeta));
      training.state->commit();
      plan.activations = std::max(plan.activations, peak() - persistent);
    }
    plan.free_blocks = allocator.stats().bytes_from_system - before - persistent - plan.activations;
  };
  make_steps();
  // The run will choose between two kinds of kernels, and the plan holds for both.
  if (gpu && choose_cudnn_where_it_may_be(training.attention, config, dtype, place)) make_steps();
  const auto item = static_cast<int64_t>(size_of(dtype));
  plan.workspace = gpu ? static_cast<int64_t>(kProductWorkspaceBytes) : threads * kScratchElements * item;
  plan.program = kProgramBytes;

  if (config.evaluate.every > 0) {
    RunConfig evaluation = evaluation_config(config);
    evaluation.data.rows = (evaluation.evaluate.rows + ranks - 1) / ranks;
    allocator.reset_peak();
    const int64_t blocks_before = allocator.stats().bytes_from_system;
    const ModelReading reading = reading_of(evaluation.model, evaluation.data.subsequence, Purpose::evaluate);
    const Network network(training.store, reading.model, vocabulary, dtype);
    StatePool state(network.declared.state, evaluation.data.rows, evaluation.data.subsequence, dtype, kMeta);
    for (const int64_t step : steps_to_plan(late_step(evaluation, network))) {
      const Batch batch = random_batch(evaluation.data, vocabulary, network.model.insertion(), step);
      if (step > 0) state.assume_read(batch.position.front());
      state.begin_step(batch);
      Tape tape(false);
      const StateView view = state.view(0, evaluation.data.rows);
      network.model.loss({.tape = tape, .batch = batch, .state = view});
      state.commit();
    }
    plan.evaluation = peak() - persistent;
    // It may also give blocks of a step back.
    plan.evaluation_blocks = std::max<int64_t>(0, allocator.stats().bytes_from_system - blocks_before);
  }

  int64_t all_moments = 0;
  for (int rank = 0; rank < place.ranks; ++rank) {
    const int64_t of_rank = moment_bytes(training.store, {rank, place.ranks}, config.optimizer);
    plan.moments = std::max(plan.moments, of_rank);
    all_moments += of_rank;
  }

  // Parts of a checkpoint, each built in memory as files of limited size, of which HDF5 holds a second copy. State goes
  // from where it lies into its file; that of a GPU over a small buffer.
  const int64_t state = (plan.state + plan.host_state + plan.file_state) / plan.rows * config.data.rows;
  plan.checkpoint = plan.weights + all_moments + plan.average + state;
  const int64_t largest = std::max({plan.weights, plan.moments, plan.average});
  int64_t largest_tensor = 0;
  for (const ParameterStore::Entry& entry : training.store.entries()) {
    largest_tensor = std::max(largest_tensor, entry.shape.numel() * item);
  }
  const int64_t file = std::min(largest, std::max(kPartFileBytes, largest_tensor));
  const int64_t piece = gpu ? std::min(plan.state + plan.host_state, kStatePieceBytes) : 0;
  plan.checkpoint_work = 2 * file + std::min(file / 2, kHeapBytes) + piece;
  return plan;
}

}  // namespace quire
