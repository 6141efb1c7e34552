// A run for tests of comparisons, with figures that are known by hand.
#pragma once

#include <numbers>
#include <string>
#include <vector>

#include "trainers/compare/comparison.h"

namespace quire::test {

// `bits` are the bits per byte of its documents, which have ten bytes each.
inline ComparedRun run_of(const std::string& path, int64_t seed, const std::vector<double>& bits) {
  ComparedRun run;
  run.path = path;
  run.config.run.seed = seed;
  run.config.schedule.steps = 100;
  run.config.schedule.warmup = 10;
  run.evaluation.corpus = "c";
  run.evaluation.tokenizer = "byte:1";
  run.evaluation.weights = "trained";
  run.evaluation.trained = {100, 1000, 10.0};
  run.evaluation.has_bytes_by_position = true;
  run.newest_checkpoint = 100;
  for (size_t i = 0; i < bits.size(); ++i) {
    const double nll = bits[i] * 10 * std::numbers::ln2;
    run.evaluation.documents.push_back({std::to_string(i), 11, 10, 2, nll, {{0, 1, 11, 10, nll}}});
  }
  run.final_tokens = 1000;
  run.final_seconds = 10;
  run.curve = {{50, 500, 5, 11, 3.0, 4.0}, {100, 1000, 10, 11, 1.0, 2.0}};
  return run;
}

}  // namespace quire::test
