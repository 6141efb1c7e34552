#include "trainers/run/trainer.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/log.h"
#include "trainers/checkpoint/training_checkpoint.h"
#include "trainers/plan/idle_state.h"
#include "trainers/run/kept_checkpoints.h"
#include "trainers/run/pace.h"
#include "trainers/run/progress.h"
#include "trainers/run/schedule_share.h"
#include "trainers/run/signals.h"
#include "trainers/step/exchange_timer.h"
#include "trainers/step/layer_norms.h"
#include "trainers/step/nonfinite.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

}  // namespace

RunOutcome Trainer::run(const std::function<std::string()>& stop) {
  const ThreadPool::Use use(threads_);
  log_to_file(directory_.log());
  const std::string documents =
      mixture_ ? "a mixture" : fmt::format("{} documents", corpus_->split(config_.data.split).documents());
  log_info(fmt::format("{}: {} parameters, {} to train on, {} threads, {}; run directory {}", config_.run.name,
                       training_->store.parameter_count(), documents, threads_.threads(), machine_.backend,
                       directory_.path().string()));
  if (ranks_.size() > 1) log_info(describe_ranks());
  if (ranks_.size() > config_.data.rows && ranks_.is_root()) {
    log_warn(fmt::format("data.rows is {}, so {} of {} ranks have no row and only wait for the others",
                         config_.data.rows, ranks_.size() - config_.data.rows, ranks_.size()));
  }
  if (!machine_.without_gpu.empty() && machine_.gpu_expected) {
    log_warn(fmt::format("no GPU is used: {}; run.device: cpu says that none is wanted", machine_.without_gpu));
  } else if (!machine_.without_gpu.empty() && training_->step == 0) {
    log_info(fmt::format("no GPU is used: {}", machine_.without_gpu));
  }
  if (ranks_.is_root()) log_info(describe_reading());
  if (mixture_) {
    for (const std::string& line : mixture_->describe(schedule_share(config_).tokens)) log_info(line);
  }
  for (const std::string& line : describe_groups(training_->store, config_.optimizer)) log_info(line);
  for (const std::string& line : attention_) log_info(line);
  if (!mixture_ && ranks_.is_root() && training_->step == 0) {
    for (const std::string& line : describe_idle_state(config_, training_->network.declared.state, *corpus_)) {
      log_info(line);
    }
  }
  if (training_->step > 0) {
    log_info(fmt::format("going on from step {}", training_->step));
  }
  for (const std::string& line : changes_) log_info(line);
  // The evaluation before the first step, or one that a signal interrupted in the previous process.
  if (!evaluate_now(splits_to_evaluate(), stop)) return RunOutcome::stopped;

  if (!mixture_)
    line_ = StepLine(bits_per_byte_of_nat(corpus_->split(config_.data.split), config_.data.score_first_token));
  Progress progress("train", config_.schedule.steps, training_->step);
  auto since = Clock::now();
  int64_t targets = 0;
  int64_t steps = 0;
  double exchange_seconds = 0;
  Pace pace;
  // Measures time that is not part of the steps.
  const auto beside_steps = [&](const auto& work) {
    const auto started = Clock::now();
    const auto result = work();
    since += Clock::now() - started;
    progress.leave_out(seconds_since(started));
    return result;
  };
  while (training_->step < config_.schedule.steps) {
    const auto step_started = Clock::now();
    const std::optional<CursoredBatch> item = batches_->next();
    QUIRE_CHECK(item.has_value(), "trainer: the endless batches ended");
    const int64_t number = training_->step + 1;
    const bool look = number % config_.log.every == 0 || number == config_.schedule.steps;
    const StepResult result =
        train_step(*training_, config_, item->batch, ranks_, look ? ReadResult::always : ReadResult::when_free);
    cursor_ = item->after;
    targets += result.targets;
    exchange_seconds += result.exchange_seconds;
    ++steps;

    const int64_t step = training_->step;
    const bool last = step == config_.schedule.steps;
    if (result.skipped && ranks_.is_root()) warn_of_skip(result);
    if (step % config_.log.every == 0 || last || result.skipped) {
      log_step(result, seconds_since(since), exchange_seconds, targets, steps);
      exchange_seconds = 0;
      targets = 0;
      steps = 0;
      since = Clock::now();
    }
    const double step_seconds = seconds_since(step_started);
    line_.add(result, step_seconds);
    if (train_seconds_) *train_seconds_ += step_seconds;
    if (const std::string warning = pace.add(step_seconds); !warning.empty() && ranks_.is_root()) log_warn(warning);
    progress.update(step, line_.text());
    if (ranks_.is_root()) require_log_written();

    std::string why;
    {
      const ExchangeTimer timer(exchange_seconds);
      why = ask(stop);
    }
    bool evaluated = true;
    if (evaluation_due()) {
      evaluated = beside_steps([&] { return why.empty() && evaluate_now(config_.evaluate.split.names, stop); });
      if (!evaluated && why.empty()) why = ask(stop);
    }
    const bool stopping = !why.empty();
    if (stopping || last) {
      save();
    } else if (config_.checkpoint.due(step)) {
      beside_steps([&] { return try_to_save(); });
    }
    if (stopping && !(last && evaluated)) {
      progress.finish();
      StopSignals::ignore_more();
      log_info(fmt::format("stopped after step {} ({}); go on with: quire train --resume {}", step, why,
                           directory_.path().string()));
      return RunOutcome::stopped;
    }
  }
  progress.finish();
  StopSignals::ignore_more();
  log_info(fmt::format("finished after step {}; evaluate it with: quire eval {}", training_->step,
                       directory_.path().string()));
  return RunOutcome::finished;
}

std::string Trainer::describe_reading() const {
  if (mixture_) return describe(schedule_share(config_), config_);
  return describe(schedule_share(config_, corpus_->split(config_.data.split)), config_);
}

// Describes the hosts of the ranks and the library that carries their tensors.
std::string Trainer::describe_ranks() const {
  constexpr size_t kMaxHosts = 8;
  std::vector<std::pair<std::string, int>> hosts;
  for (const std::string& host : ranks_.hosts()) {
    const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const auto& one) { return one.first == host; });
    found == hosts.end() ? void(hosts.emplace_back(host, 1)) : void(++found->second);
  }
  std::vector<std::string> places;
  for (const auto& [host, count] : hosts) {
    if (places.size() < kMaxHosts) places.push_back(fmt::format("{} on {}", count, host));
  }
  if (hosts.size() > kMaxHosts) places.push_back(fmt::format("{} more hosts", hosts.size() - kMaxHosts));
  const std::string over = ranks_.collectives().description();
  return fmt::format("{} ranks ({}){}; rank 0 has {} of {} rows and {} of {} moments", ranks_.size(),
                     fmt::join(places, ", "), over.empty() ? "" : " over " + over,
                     training_->last_row - training_->first_row, config_.data.rows, training_->parts->elements(),
                     training_->store.values().numel());
}

void Trainer::log_step(const StepResult& result, double seconds, double exchange_seconds, int64_t targets,
                       int64_t steps) {
  const auto peak = static_cast<int64_t>(
      ranks_.largest(static_cast<double>(device_backend(machine_.device.kind).allocator().stats().peak_bytes)));
  training_->logged = training_->step;
  std::vector<LayerNorms> norms;
  if (config_.log.norms) norms = layer_norms(*training_, ranks_);
  if (!ranks_.is_root()) return;
  nlohmann::ordered_json epoch;  // null for a mixture
  if (!mixture_) {
    // BOS has a target, too: a document of n tokens has n + 1 targets, or n when the first one does not count.
    const Split& split = corpus_->split(config_.data.split);
    const int64_t of_bos = config_.data.score_first_token ? split.documents() : 0;
    epoch = static_cast<double>(training_->tokens) / static_cast<double>(split.totals().tokens + of_bos);
  }
  nlohmann::ordered_json line{
      {"step", training_->step},
      {"loss", result.loss},
      {"lr", result.learning_rate},
      {"grad_norm", result.grad_norm},
      {"skipped", training_->skipped},
      {"tokens", training_->tokens},
      {"tokens_per_second", static_cast<double>(targets) / seconds},
      {"step_ms", 1000 * seconds / static_cast<double>(steps)},
      {"epoch", epoch},
      {"peak_bytes", peak},
  };
  // The host cannot see these two times while an asynchronous device works.
  if (ranks_.size() > 1 && !device_backend(machine_.device.kind).is_asynchronous()) {
    line["overlap"] = result.overlap;
    line["exchange_ms"] = 1000 * exchange_seconds / static_cast<double>(steps);
  }
  for (const auto& [name, value] : result.telemetry) line["telemetry"][name] = value;
  for (const LayerNorms& of : norms) line["norms"][of.layer] = {{"weights", of.weights}, {"gradient", of.gradient}};
  metrics_->append(line);
  if (events_) events_->append(line);
}

void Trainer::warn_of_skip(const StepResult& result) const {
  log_warn(
      fmt::format("step {}: loss {} and gradient norm {}: no update, {} of {} rows begin anew; {} in a row, more "
                  "than {} end the run (run.on_nonfinite)",
                  training_->step, result.loss, result.grad_norm, result.cleared_rows, config_.data.rows,
                  training_->skips_in_a_row, config_.run.on_nonfinite.max_skips));
}

std::string Trainer::ask(const std::function<std::string()>& stop) {
  if (ranks_.size() == 1) return stop();
  const Ranks::Operation operation(ranks_, "asking whether to stop");
  const std::vector<std::string> reasons = ranks_.gather(stop());
  for (size_t rank = 0; rank < reasons.size(); ++rank) {
    if (reasons[rank].empty()) continue;
    return rank == 0 ? reasons[rank] : fmt::format("rank {}: {}", rank, reasons[rank]);
  }
  return "";
}

void Trainer::save() {
  if (saved_step_ == training_->step) return;
  require_finite(*training_);
  if (!weights_are_finite(training_->store)) {
    fail(ErrorKind::numerics,
         "step {}: the update made weights that are not finite, so no checkpoint is written. Resume from the last one "
         "with a lower optimizer.lr",
         training_->step);
  }
  const Ranks::Operation operation(ranks_, "saving the checkpoint");
  const std::filesystem::path folder = directory_.checkpoints();
  save_training(folder, *training_, config_, *corpus_, mixture_.get(), cursor_, machine_, ranks_);
  saved_step_ = training_->step;
  ranks_.on_root([&] {
    remove_checkpoints_after(folder, training_->step);
    remove_old_checkpoints(directory_.path(), config_);
  });
}

bool Trainer::try_to_save() {
  try {
    save();
    return true;
  } catch (const Error& error) {
    // Lost ranks and differing weights are errors that have nothing to do with the disk, so the run does not continue.
    const bool goes_on = error.kind() != ErrorKind::numerics && error.kind() != ErrorKind::communication;
    if (!goes_on || config_.checkpoint.on_error == CheckpointErrorPolicy::stop) throw;
    if (ranks_.is_root()) log_warn(fmt::format("no checkpoint of step {}: {}", training_->step, error.what()));
    return false;
  }
}

}  // namespace quire
