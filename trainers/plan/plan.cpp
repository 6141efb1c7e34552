#include "trainers/plan/plan.h"

#include <algorithm>
#include <mutex>

#include "core/check.h"
#include "kernels/backend.h"
#include "kernels/cuda_scratch.h"
#include "kernels/planned_scratch.h"
#include "layers/model_mechanisms.h"
#include "layers/state/state_pool.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/plan/random_batch.h"
#include "trainers/run/attention_choice.h"
#include "trainers/run/evaluation_config.h"
#include "trainers/run/step.h"

namespace quire {

namespace {

// Measured: the program with its libraries, and the scratch memory of a thread's kernels.
constexpr int64_t kProgramBytes = int64_t{16} << 20;
constexpr int64_t kScratchElements = int64_t{650} << 10;
// malloc keeps at most this much memory of checkpoint files that were built before.
constexpr int64_t kHeapBytes = int64_t{32} << 20;
// Measured: memory of training besides steps: the corpus, waiting batches, the files of the run.
constexpr int64_t kTrainingBytes = int64_t{4} << 20;

// Returns the parts of a model: "blocks.3.attention.query.weight" belongs to "blocks"; names without a dot are parts
// themselves.
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

namespace {

// Batches with more tokens are not run: their plan is extrapolated from two smaller ones.
constexpr int64_t kMostTokens = int64_t{1} << 20;
constexpr int64_t kSampledTokens = kMostTokens / 4;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The rows that a rank reads at once. When there are too many, `larger` of them are run, and half of these, to see what
// a row adds.
struct SampledRows {
  int64_t all;
  int64_t larger;
  int64_t smaller;

  // `blocks`: the number of blocks of rows that exist at the same time.
  SampledRows(int64_t rows, int64_t length, int64_t blocks)
      : all(rows),
        larger(rows <= kMostTokens / (blocks * length)
                   ? rows
                   : std::min(rows, std::max<int64_t>(2, kSampledTokens / length / blocks))),
        smaller(std::max<int64_t>(1, larger / 2)) {}

  int64_t scaled(int64_t bytes_of_smaller, int64_t bytes_of_larger) const {
    if (larger == all) return bytes_of_larger;
    return bytes_of_larger + (bytes_of_larger - bytes_of_smaller) / (larger - smaller) * (all - larger);
  }
};

Plan make_whole_plan(const RunConfig& config, int64_t ranks, int threads) {
  // The counters of Device::meta are global, so ranks that are threads plan one after the other.
  static std::mutex planning;
  const std::lock_guard lock(planning);
  // The last rank has the largest number of rows.
  const RankPlace place{static_cast<int>(ranks - 1), static_cast<int>(ranks)};
  Ranks one;
  const int64_t vocabulary = expected_vocabulary(config);
  const DeviceKind planned = planned_device(config.run);
  const bool gpu = planned == DeviceKind::cuda;
  const PlannedScratch scratch(planned, config.run.products == ProductChoice::timed);
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

  // The second step includes everything that the first one leaves behind.
  const auto make_steps = [&] {
    for (int64_t step = 0; step < 2; ++step) {
      allocator.reset_peak();
      const Batch batch = random_batch(data, vocabulary, training.network.model.insertion(), step);
      std::vector<double> counts;
      for (const auto& [name, count] : training.network.model.loss_counts(batch))
        counts.push_back(static_cast<double>(count));
      for (Learner* learner : training.network.model.learners()) {
        learner->begin_step({.key = {}, .update = step + 1, .rows = config.data.rows, .length = batch.length});
      }
      accumulate_gradients(
          training, config, batch, counts, [](int64_t, int64_t, const LossTerms&) {}, one);
      training.optimizer->update(step + 1, config.optimizer.lr, Tensor::empty({2}, DType::f64, kMeta));
      training.state->commit();
    }
    plan.activations = std::max(plan.activations, peak() - persistent);
    plan.free_blocks = allocator.stats().bytes_from_system - before - persistent - plan.activations;
  };
  make_steps();
  // The run will choose between two kinds of kernels, and the plan must cover both.
  if (gpu && choose_cudnn_where_it_may_be(training.attention, config, dtype, place)) make_steps();
  const auto item = static_cast<int64_t>(size_of(dtype));
  plan.workspace = gpu ? static_cast<int64_t>(kProductWorkspaceBytes) : threads * kScratchElements * item;
  plan.program = kProgramBytes;

  if (config.evaluate.every > 0) {
    RunConfig evaluation = evaluation_config(config);
    evaluation.data.rows = (evaluation.evaluate.rows + ranks - 1) / ranks;
    allocator.reset_peak();
    const int64_t held = allocator.stats().bytes_from_system;
    const ModelReading reading = reading_of(evaluation.model, evaluation.data.subsequence, Purpose::evaluate);
    const Network network(training.store, reading.model, vocabulary, dtype);
    StatePool state(network.declared.state, evaluation.data.rows, evaluation.data.subsequence, dtype, kMeta);
    const Batch batch = random_batch(evaluation.data, vocabulary, network.model.insertion(), 0);
    state.begin_step(batch);
    Tape tape(false);
    const StateView view = state.view(0, evaluation.data.rows);
    network.model.loss({.tape = tape, .batch = batch, .state = view});
    plan.evaluation = peak() - persistent;
    plan.evaluation_blocks = allocator.stats().bytes_from_system - held;
  }

  int64_t all_moments = 0;
  for (int rank = 0; rank < place.ranks; ++rank) {
    const int64_t of_rank = moment_bytes(training.store, {rank, place.ranks}, config.optimizer);
    plan.moments = std::max(plan.moments, of_rank);
    all_moments += of_rank;
  }

  // Each part of a checkpoint is built in memory as files of limited size, and HDF5 makes a second copy of each. State
  // is written directly from memory into its file; that of a GPU passes through a small buffer.
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

}  // namespace

Plan make_plan(const RunConfig& config, int64_t ranks, int threads) {
  if (ranks > config.data.rows) {
    fail(ErrorKind::config,
         "-n {}: data.rows is {}, and a rank without a row only waits for the others; give fewer ranks or more rows",
         ranks, config.data.rows);
  }
  const int64_t rows = ceil_div(config.data.rows, ranks);
  const int64_t blocks = std::min(config.data.accumulate, rows);
  // Two blocks of rows suffice, because the third one finds the same memory as the second.
  const int64_t sampled_blocks = std::min<int64_t>(blocks, rows * config.data.subsequence <= kMostTokens ? blocks : 2);
  const SampledRows block(ceil_div(rows, blocks), config.data.subsequence, sampled_blocks);
  const SampledRows evaluation(ceil_div(config.evaluate.rows, ranks), config.data.subsequence, 1);
  const bool whole = block.larger == block.all && sampled_blocks == blocks && evaluation.larger == evaluation.all;
  if (whole) return make_whole_plan(config, ranks, threads);
  const auto sampled = [&](int64_t block_rows, int64_t evaluation_rows) {
    RunConfig part = config;
    part.data.rows = sampled_blocks * block_rows * ranks;
    part.data.accumulate = sampled_blocks;
    part.evaluate.rows = evaluation_rows * ranks;
    return make_whole_plan(part, ranks, threads);
  };
  const Plan smaller = sampled(block.smaller, evaluation.smaller);
  Plan plan = sampled(block.larger, evaluation.larger);
  const int64_t sampled_rows = plan.rows;
  const int64_t sampled_state = plan.state + plan.host_state + plan.file_state;
  plan.rows = rows;
  for (int64_t* const state : {&plan.state, &plan.host_state, &plan.file_state}) *state = *state / sampled_rows * rows;
  const double free_share = static_cast<double>(plan.free_blocks) / static_cast<double>(plan.activations);
  plan.activations = block.scaled(smaller.activations, plan.activations);
  plan.free_blocks = static_cast<int64_t>(free_share * static_cast<double>(plan.activations));
  plan.evaluation = evaluation.scaled(smaller.evaluation, plan.evaluation);
  // An evaluation reuses free blocks of a step as far as they suffice.
  plan.evaluation_blocks = std::max<int64_t>(0, plan.evaluation - plan.activations - plan.free_blocks);
  plan.checkpoint += (sampled_state / sampled_rows) * (config.data.rows - sampled_rows * ranks);
  return plan;
}

nlohmann::ordered_json to_json(const Plan& plan, const RunConfig& config) {
  nlohmann::ordered_json parts;
  for (const Plan::Part& part : plan.parts) parts[part.name] = part.parameters;
  return {
      {"parameters", plan.parameters},
      {"parts", parts},
      {"vocabulary", plan.vocabulary},
      {"rows", plan.rows},
      {"bytes",
       {{"weights", plan.weights},
        {"gradients", plan.gradients},
        {"moments", plan.moments},
        {"average", plan.average},
        {"state", plan.state},
        {"host_state", plan.host_state},
        {"file_state", plan.file_state},
        {"activations", plan.activations},
        {"free_blocks", plan.free_blocks},
        {"evaluation", plan.evaluation},
        {"evaluation_blocks", plan.evaluation_blocks},
        {"workspace", plan.workspace},
        {"checkpoint_work", plan.checkpoint_work},
        {"program", plan.program},
        {"step", plan.step()},
        {"total", plan.total()}}},
      {"disk", {{"checkpoint", plan.checkpoint}, {"kept", (config.checkpoint.keep + 1) * plan.checkpoint}}},
  };
}

}  // namespace quire
