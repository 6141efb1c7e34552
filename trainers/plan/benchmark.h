// Measures speed and memory of a configuration's training step on random tokens.
#pragma once

#include <nlohmann/json.hpp>

#include "kernels/op.h"
#include "trainers/step/step.h"

namespace quire {

struct BenchmarkOptions {
  int64_t steps = 10;
  int64_t warmup = 3;
  bool profile = false;  // time every operation
};

struct BenchmarkResult {
  int64_t steps = 0;  // that were timed
  int64_t parameters = 0;
  int64_t vocabulary = 0;
  double tokens_per_second = 0;  // at the median step
  double step_ms_median = 0;
  double step_ms_min = 0;
  double step_ms_max = 0;
  double model_flops = 0;          // of one step: products of the forward pass, times three
  double measured_peak_flops = 0;  // per second: a large f32 product with the same threads, measured in this run
  double measured_bandwidth = 0;   // bytes per second of a large sum with the same threads; when profiling
  int64_t peak_bytes = 0;          // largest number of bytes in tensors at one time
  int64_t state_bytes = 0;
  int64_t allocated_bytes = 0;  // tensors and free blocks of the allocator
  int64_t resident_bytes = 0;   // largest resident memory of the process
  // Counted during the timed steps: calls of the tensor allocator that reached the system, and growth of the heap.
  int64_t system_allocations = 0;
  int64_t heap_growth_bytes = 0;
  std::vector<std::string> choices;  // which kernels the steps take, as the log says it
  std::vector<OpStats> operations;   // by time, when profiling

  double model_flops_share() const { return model_flops / (step_ms_median / 1000) / measured_peak_flops; }
};

// Returns the seconds of an operation if only its products and the bytes of its operands took time.
double roofline_seconds(const BenchmarkResult& result, const OpStats& op);

// Returns multiplications and additions of a training step, counting a backward pass as two forward passes: every
// weight matrix once per token it is applied to (carried hidden states included), attention over the keys that a token
// sees in full rows.
double training_flops(const ModelConfig& model, int64_t vocabulary, int64_t rows, int64_t subsequence);

// Returns the largest resident memory of this process so far.
int64_t max_resident_bytes();

// Needs no corpus: token ids are random; a document begins in every row once and then continues.
BenchmarkResult run_benchmark(const RunConfig& config, const Machine& machine, const BenchmarkOptions& options);

nlohmann::ordered_json to_json(const BenchmarkResult& result, const std::string& config, const Machine& machine,
                               int threads);

}  // namespace quire
