#include "trainers/trainer.h"

#include <chrono>
#include <cmath>

#include "core/check.h"
#include "core/file_io.h"
#include "core/log.h"
#include "trainers/progress.h"
#include "trainers/training_checkpoint.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

std::unique_ptr<Corpus> open_corpus(const RunConfig& config) {
  const std::string& path = config.data.corpus;
  if (path.empty()) {
    fail(ErrorKind::config, "data.corpus: name the file that quire prepare made, for example data.corpus=corpus.h5");
  }
  if (!std::filesystem::exists(path)) {
    fail(ErrorKind::data, "{}: no such corpus; make one with quire prepare --output {}", path, path);
  }
  std::unique_ptr<Corpus> corpus = Corpus::open(path);
  corpus->split(config.data.split);
  if (config.evaluate.every > 0) corpus->split(config.evaluate.split);
  const int64_t vocabulary = corpus->tokenizer().vocabulary_size();
  if (config.data.vocabulary && *config.data.vocabulary != vocabulary) {
    fail(ErrorKind::config, "data.vocabulary: {} but the tokenizer of {} has {} ids; leave it out",
         *config.data.vocabulary, path, vocabulary);
  }
  return corpus;
}

}  // namespace

BatchOptions batch_options(const RunConfig& config, const TrainingState& training) {
  return {.subsequence = config.data.subsequence,
          .rows = config.data.rows,
          .first_row = training.first_row,
          .last_row = training.last_row,
          .pack = config.data.pack == PackChoice::pad ? Pack::pad : Pack::concat,
          .alignment = training.network.model.alignment(),
          .seed = static_cast<uint64_t>(config.run.seed),
          .shuffle = true,
          .endless = true};
}

Trainer::Trainer(RunConfig config, std::unique_ptr<Corpus> corpus, RunDirectory directory)
    : config_(std::move(config)),
      evaluation_config_(evaluation_config(config_)),
      directory_(std::move(directory)),
      machine_(Machine::choose(config_.run)),
      threads_(static_cast<int>(config_.run.threads)),
      communicator_(make_local_communicator()),
      corpus_(std::move(corpus)) {
  training_ =
      std::make_unique<TrainingState>(config_, corpus_->tokenizer().vocabulary_size(), machine_, *communicator_);
}

Trainer::~Trainer() = default;

void Trainer::open_batches(const std::optional<Cursor>& from) {
  const BatchOptions options = batch_options(config_, *training_);
  auto source = from ? std::make_unique<BatchSource>(*corpus_, config_.data.split, options, *from)
                     : std::make_unique<BatchSource>(*corpus_, config_.data.split, options);
  batches_ = std::make_unique<Prefetcher>(std::move(source));
}

std::unique_ptr<Trainer> Trainer::start(const RunConfig& config, const std::filesystem::path& run_directory) {
  // Everything that can be wrong with machine, configuration and data is found before the directory exists.
  Machine::choose(config.run);
  evaluation_config(config);
  std::unique_ptr<Corpus> corpus = open_corpus(config);
  std::unique_ptr<Trainer> trainer(new Trainer(config, std::move(corpus), RunDirectory::create(run_directory)));
  trainer->open_batches(std::nullopt);
  replace_file_atomically(trainer->directory_.config(), dump_config(trainer->config_));
  trainer->metrics_ = std::make_unique<MetricsLog>(trainer->directory_.metrics());
  return trainer;
}

std::unique_ptr<Trainer> Trainer::resume(const std::filesystem::path& run_or_checkpoint,
                                         const std::vector<std::string>& overrides, bool drop_state) {
  const std::filesystem::path checkpoint = resolve_checkpoint(run_or_checkpoint);
  const CheckpointReader reader = CheckpointReader::open(checkpoint);
  const RunConfig before = checkpoint_config(reader);
  const RunConfig config = with_overrides(before, overrides);
  require_resumable(diff_configs(before, config));

  // RUN/checkpoints/step-N
  const std::filesystem::path directory = std::filesystem::absolute(checkpoint).parent_path().parent_path();
  std::unique_ptr<Corpus> corpus = open_corpus(config);
  const auto stored = reader.meta().at("corpus").get<std::string>();
  if (corpus->hash() != stored) {
    fail(ErrorKind::data, "{}: its checksum is {} but the run was trained on {}; resume with the corpus it began with",
         config.data.corpus, corpus->hash(), stored);
  }
  std::unique_ptr<Trainer> trainer(new Trainer(config, std::move(corpus), RunDirectory::open(directory)));
  trainer->cursor_ = load_training(reader, *trainer->training_, drop_state);
  trainer->saved_step_ = trainer->training_->step;
  if (reader.meta().at("backend").get<std::string>() != trainer->machine_.backend) {
    log_warn(
        fmt::format("the checkpoint was written with {} kernels, this run uses {}: results may differ in the last bits",
                    reader.meta().at("backend").get<std::string>(), trainer->machine_.backend));
  }
  trainer->open_batches(trainer->cursor_);
  truncate_metrics_after(trainer->directory_.metrics(), trainer->training_->step);
  replace_file_atomically(trainer->directory_.config(), dump_config(config));
  trainer->metrics_ = std::make_unique<MetricsLog>(trainer->directory_.metrics());
  return trainer;
}

RunOutcome Trainer::run(const std::function<bool()>& stop) {
  const ThreadPool::Use use(threads_);
  log_to_file(directory_.log());
  log_info(fmt::format("{}: {} parameters, {} documents to train on, {} threads, {}; run directory {}",
                       config_.run.name, training_->store.parameter_count(),
                       corpus_->split(config_.data.split).documents(), threads_.threads(), machine_.backend,
                       directory_.path().string()));
  if (training_->step > 0) log_info(fmt::format("going on from step {}", training_->step));

  Progress progress("train", config_.schedule.steps, training_->step);
  auto since = Clock::now();
  int64_t targets = 0;
  int64_t steps = 0;
  while (training_->step < config_.schedule.steps) {
    const std::optional<CursoredBatch> item = batches_->next();
    QUIRE_CHECK(item.has_value(), "trainer: the endless batches ended");
    const StepResult result = train_step(*training_, config_, item->batch, *communicator_);
    cursor_ = item->after;
    targets += result.targets;
    ++steps;

    const int64_t step = training_->step;
    const bool last = step == config_.schedule.steps;
    if (step % config_.log.every == 0 || last) {
      log_step(result, seconds_since(since), targets, steps);
      targets = 0;
      steps = 0;
      since = Clock::now();
    }
    progress.update(step, fmt::format("loss {:.3f}", result.loss));

    const auto due = [&](int64_t every) { return every > 0 && step % every == 0; };
    bool stopping = stop();
    if (!stopping && config_.evaluate.every > 0 && (due(config_.evaluate.every) || last)) {
      const auto evaluation_started = Clock::now();
      stopping = !evaluate_now(stop);
      since += Clock::now() - evaluation_started;
    }
    if (stopping || last || due(config_.checkpoint.every)) {
      const auto saving_started = Clock::now();
      save();
      since += Clock::now() - saving_started;
    }
    if (stopping && !last) {
      progress.finish();
      log_info(
          fmt::format("stopped after step {}; go on with: quire train --resume {}", step, directory_.path().string()));
      return RunOutcome::stopped;
    }
  }
  progress.finish();
  log_info(fmt::format("finished after step {}; evaluate it with: quire eval {}", training_->step,
                       directory_.path().string()));
  return RunOutcome::finished;
}

void Trainer::log_step(const StepResult& result, double seconds, int64_t targets, int64_t steps) {
  metrics_->append({
      {"step", training_->step},
      {"loss", result.loss},
      {"lr", result.learning_rate},
      {"grad_norm", result.grad_norm},
      {"tokens", training_->tokens},
      {"tokens_per_second", static_cast<double>(targets) / seconds},
      {"step_ms", 1000 * seconds / static_cast<double>(steps)},
      {"epoch",
       static_cast<double>(cursor_.next_place) / static_cast<double>(corpus_->split(config_.data.split).documents())},
      {"peak_bytes", device_backend(machine_.device.kind).allocator().stats().peak_bytes},
  });
}

bool Trainer::evaluate_now(const std::function<bool()>& stop) {
  const EvaluationResult result = evaluate(training_->store, evaluation_config_, *corpus_, machine_,
                                           {.split = config_.evaluate.split,
                                            .rows = config_.evaluate.rows,
                                            .documents = config_.evaluate.documents,
                                            .progress = {},
                                            .stop = stop});
  if (!result.complete) return false;
  nlohmann::ordered_json line{{"step", training_->step}};
  line["evaluation"] = to_json(result, evaluation_config_, config_.evaluate.rows);
  metrics_->append(line);
  log_info(fmt::format("step {}: split {}, {} documents: {:.4f} bits per byte, token perplexity {:.3f}", training_->step,
                       config_.evaluate.split, result.documents.size(), result.bits_per_byte(),
                       result.token_perplexity()));
  return true;
}

void Trainer::save() {
  if (saved_step_ == training_->step) return;
  try {
    save_training(directory_.checkpoints(), *training_, config_, *corpus_, cursor_, machine_);
    keep_newest_checkpoints(directory_.checkpoints(), config_.checkpoint.keep);
    saved_step_ = training_->step;
  } catch (const Error& error) {
    if (config_.checkpoint.on_error == CheckpointErrorPolicy::stop) throw;
    log_warn(fmt::format("no checkpoint of step {}: {}", training_->step, error.what()));
  }
}

}  // namespace quire
