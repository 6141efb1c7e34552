#include "trainers/plan/benchmark.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "core/log.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/random_values.h"
#include "layers/model/model_mechanisms.h"
#include "trainers/plan/plan.h"
#include "trainers/plan/random_batch.h"
#include "trainers/setup/attention_choice.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

// Returns the seconds of the fastest of several calls, each measured from an idle device to an idle device.
template <typename Call>
double best_seconds(const Machine& machine, int repeats, double at_least, const Call& call) {
  DeviceBackend& device = device_backend(machine.device.kind);
  double best = 1e9;
  const auto begun = Clock::now();
  for (int repeat = 0; repeat < repeats || seconds_since(begun) < at_least; ++repeat) {
    device.synchronize();
    const auto started = Clock::now();
    call();
    device.synchronize();
    best = std::min(best, seconds_since(started));
  }
  return best;
}

// Measures products that are large enough to make overhead negligible, for long enough that all threads are awake.
double product_flops(const Machine& machine) {
  const int64_t size = machine.device == kCpu ? 1024 : 8192;
  const Tensor a = random_values({size, size}, machine.dtype, machine.device);
  const Tensor b = random_values({size, size}, machine.dtype, machine.device);
  const Tensor c = Tensor::zeros({size, size}, machine.dtype, machine.device);
  const double seconds = best_seconds(machine, 8, 0.2, [&] { ops::gemm(c, a, b, {}); });
  return 2.0 * static_cast<double>(size * size * size) / seconds;
}

// Measures two reads and a write of arrays larger than any cache.
double sum_bandwidth(const Machine& machine) {
  const int64_t count = machine.device == kCpu ? int64_t{24} << 20 : int64_t{512} << 20;
  const Tensor a = Tensor::zeros({count}, machine.dtype, machine.device);
  const Tensor b = Tensor::zeros({count}, machine.dtype, machine.device);
  const Tensor c = Tensor::zeros({count}, machine.dtype, machine.device);
  const double seconds = best_seconds(machine, 8, 0, [&] { ops::add(c, a, b, 1, 1); });
  return static_cast<double>(a.bytes() + b.bytes() + c.bytes()) / seconds;
}

// Returns the bytes that malloc has from the system.
int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.arena + info.hblkhd);
}

}  // namespace

int64_t max_resident_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

double training_flops(const ModelConfig& model, int64_t vocabulary, int64_t rows, int64_t subsequence) {
  const auto e = static_cast<double>(model.width);
  const auto tokens = static_cast<double>(rows * subsequence);
  double mlp = 0;  // weights of the feed-forward layers
  for (const LayerConfig& layer : model.layer_configs()) {
    mlp += static_cast<double>(layer.mlp.projections()) * e * static_cast<double>(layer.mlp.hidden);
  }
  const auto rows_of_head = static_cast<double>(model.vocabulary.value_or(vocabulary));
  const double forward = tokens * 2 * (e * rows_of_head + mlp);
  const StepFlops mechanisms = flops_of(model, {rows, subsequence});
  return 3 * (forward + mechanisms.learned) + mechanisms.forward;
}

double roofline_seconds(const BenchmarkResult& result, const OpStats& op) {
  return std::max(op.flops / result.measured_peak_flops, op.bytes / result.measured_bandwidth);
}

BenchmarkResult run_benchmark(const RunConfig& config, const Machine& machine, const BenchmarkOptions& options) {
  Ranks one;
  RunConfig steps_alone = config;
  steps_alone.evaluate.every = 0;
  require_memory(steps_alone, machine, threads_of(config.run, one), one);
  const int64_t vocabulary = expected_vocabulary(config);
  BenchmarkResult result;
  result.vocabulary = vocabulary;
  result.measured_peak_flops = product_flops(machine);
  if (options.profile) result.measured_bandwidth = sum_bandwidth(machine);
  Allocator& allocator = device_backend(machine.device.kind).allocator();
  allocator.trim();
  allocator.reset_peak();
  require_attention(config, machine, {});
  TrainingState training(config, vocabulary, machine);
  result.choices = choose_attention(training, config, machine, one);
  for (const std::string& line : result.choices) log_info(line);
  // Steps follow each other without waiting for the device, as in training: where it works on when a call returns, a
  // time is the mean of several steps.
  DeviceBackend& device = device_backend(machine.device.kind);
  const int64_t group = device.is_asynchronous() ? std::max<int64_t>(1, (options.steps + 4) / 5) : 1;
  std::vector<double> times;
  auto started = Clock::now();
  int64_t since = 0;
  int64_t targets = 0;  // tokens of the text, without inserted ones
  int64_t allocations = 0;
  int64_t heap = 0;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    const Batch batch = random_batch(config.data, vocabulary, training.network.model.insertion(), step);
    if (step == options.warmup) {
      for (OpBase* op : OpBase::all()) op->reset_stats();
      OpBase::set_timing(options.profile);
      allocations = allocator.stats().system_allocations;
      heap = heap_bytes();
    }
    if (since == 0) {
      device.synchronize();
      started = Clock::now();
    }
    train_step(training, config, batch, one, ReadResult::when_free);
    if (step < options.warmup) continue;
    targets += batch.target_count;
    if (++since < group && step + 1 < options.warmup + options.steps) continue;
    device.synchronize();
    times.push_back(1000 * seconds_since(started) / static_cast<double>(since));
    since = 0;
  }
  OpBase::set_timing(false);
  std::sort(times.begin(), times.end());
  result.steps = options.steps;
  result.parameters = training.store.parameter_count();
  result.step_ms_median = times[times.size() / 2];
  result.step_ms_min = times.front();
  result.step_ms_max = times.back();
  const double targets_per_step = static_cast<double>(targets) / static_cast<double>(options.steps);
  result.tokens_per_second = targets_per_step / (result.step_ms_median / 1000);
  result.model_flops = training_flops(config.model, vocabulary, config.data.rows, config.data.subsequence);
  result.peak_bytes = allocator.stats().peak_bytes;
  result.state_bytes = training.state->bytes();
  result.allocated_bytes = allocator.stats().bytes_from_system;
  result.resident_bytes = max_resident_bytes();
  result.system_allocations = allocator.stats().system_allocations - allocations;
  result.heap_growth_bytes = heap_bytes() - heap;
  if (options.profile) {
    for (const OpBase* op : OpBase::all()) {
      if (op->stats().calls > 0) result.operations.push_back(op->stats());
    }
    std::sort(result.operations.begin(), result.operations.end(),
              [](const OpStats& a, const OpStats& b) { return a.seconds > b.seconds; });
  }
  return result;
}

nlohmann::ordered_json to_json(const BenchmarkResult& result, const std::string& config, const Machine& machine,
                               int threads) {
  nlohmann::ordered_json json{
      {"config", config},
      {"device", name_of(machine.device.kind)},
      {"backend", machine.backend},
      {"threads", threads},
      {"parameters", result.parameters},
      {"vocabulary", result.vocabulary},
      {"steps", result.steps},
      {"tokens_per_second", result.tokens_per_second},
      {"step_ms", {{"median", result.step_ms_median}, {"min", result.step_ms_min}, {"max", result.step_ms_max}}},
      {"model_flops", result.model_flops},
      {"measured_peak_flops", result.measured_peak_flops},
      {"model_flops_share", result.model_flops_share()},
      {"peak_bytes", result.peak_bytes},
      {"state_bytes", result.state_bytes},
      {"held_bytes", result.allocated_bytes},
      {"resident_bytes", result.resident_bytes},
      {"system_allocations", result.system_allocations},
      {"heap_growth_bytes", result.heap_growth_bytes},
      {"choices", result.choices},
  };
  if (!result.operations.empty()) {
    json["measured_bandwidth"] = result.measured_bandwidth;
    for (const OpStats& op : result.operations) {
      json["operations"].push_back({{"name", op.name},
                                    {"calls", op.calls},
                                    {"ms", 1000 * op.seconds},
                                    {"flops", op.flops},
                                    {"bytes", op.bytes},
                                    {"roofline_ms", 1000 * roofline_seconds(result, op)}});
    }
  }
  return json;
}

}  // namespace quire
