#include "trainers/run/product_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "trainers/run/step.h"

namespace quire {

namespace {

// Returns a text for the values that determine the sizes of products, besides those that stay the same on resume.
std::string passes_of(const RunConfig& config, const Batch& batch) {
  return fmt::format("{} rows of {} tokens in {} passes", batch.rows, batch.length,
                     std::min(config.data.accumulate, batch.rows));
}

}  // namespace

void rehearse_step(TrainingState& training, const RunConfig& config, const Batch& batch) {
  Ranks one;
  std::vector<double> counts;
  for (const auto& [name, count] : training.network.model.loss_counts(batch)) {
    counts.push_back(static_cast<double>(count));
  }
  const int64_t step = training.step + 1;
  for (Learner* learner : training.network.model.learners()) {
    learner->begin_step({.key = RandomKey::of(static_cast<uint64_t>(config.run.seed), step),
                         .update = step - training.skipped,
                         .rows = config.data.rows,
                         .length = batch.length});
  }
  accumulate_gradients(
      training, config, batch, counts, [](int64_t, int64_t, const LossTerms&) {}, one);
}

std::vector<std::string> choose_products(TrainingState& training, const RunConfig& config, const Batch& batch,
                                         DeviceBackend& device, Ranks& ranks) {
  std::vector<std::string> lines;
  if (config.run.products == ProductChoice::first) return lines;
  const Ranks::Operation operation(ranks, "timing products");
  const std::string passes = passes_of(config, batch);
  ranks.on_root([&] {
    if (training.timed == passes) {
      lines.emplace_back("products: as they were chosen when the run began");
      return;
    }
    lines = device.measure_kernels([&] { rehearse_step(training, config, batch); });
    if (lines.empty()) {
      lines.emplace_back("products: the run computes on no GPU, so that there is nothing to time");
    } else {
      training.timed = passes;
    }
  });
  training.timed = ranks.broadcast_from_root(training.timed);
  const std::string chosen = ranks.broadcast_from_root(ranks.is_root() ? device.kernel_choices() : "");
  ranks.on_all([&] {
    if (!ranks.is_root() && !device.use_kernel_choices(chosen)) {
      fail(ErrorKind::config,
           "run.products: timed: this rank has another GPU or version of cuBLASLt than rank 0 ({}); use first",
           chosen.substr(0, chosen.find('\n')));
    }
  });
  return lines;
}

}  // namespace quire
