// Starts a run: as a new run, from a checkpoint, or again from the beginning.
#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "layers/model/model_mechanisms.h"
#include "trainers/checkpoint/checkpoint_meta.h"
#include "trainers/checkpoint/stored_moments.h"
#include "trainers/checkpoint/training_checkpoint.h"
#include "trainers/run/kept_checkpoints.h"
#include "trainers/run/resume_check.h"
#include "trainers/run/run_evaluations.h"
#include "trainers/run/run_events.h"
#include "trainers/run/trainer.h"
#include "trainers/run/training_clock.h"
#include "trainers/setup/attention_choice.h"
#include "trainers/setup/evaluation_config.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

// Throws unless the hashes of the corpora of data.mix are the same.
void require_same_mix(const std::vector<std::string>& stored, const TrainingMixture& mixture) {
  if (stored == mixture.hashes()) return;
  fail(ErrorKind::data,
       "data.mix: a corpus is not the one that the run was trained on; resume with those it began with");
}

// Returns true for a run that was killed before its first checkpoint: it can only begin again, with its configuration.
bool is_run_without_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / "config.yaml", ignored) && !fs::exists(path / "manifest.json", ignored) &&
         fs::is_directory(path / "checkpoints", ignored) && checkpoint_steps(path / "checkpoints").empty();
}

// Sets the deadline for waiting ranks before the configuration is read, because verifying a large checkpoint takes
// long. It comes from the run's config.yaml or the request. Errors in either are found and reported later.
void set_deadline_of_run(const fs::path& given, const ResumeRequest& request, Ranks& ranks) {
  const fs::path path = fs::absolute(given.has_filename() ? given : given.parent_path());
  for (const fs::path& folder : {path, path.parent_path(), path.parent_path().parent_path()}) {
    std::error_code ignored;
    if (!fs::is_directory(folder / "checkpoints", ignored)) continue;
    try {
      const RunConfig config = requested_config(read_run_file(folder / "config.yaml"), request);
      ranks.set_deadline(std::chrono::seconds(config.run.rank_timeout.seconds));
    } catch (const Error&) {
    }
    return;
  }
}

// Puts memories that lie in files into the run directory.
Machine machine_in(Machine machine, const fs::path& run_directory) {
  machine.scratch = run_directory;
  return machine;
}

// Returns the run directory, which root makes or opens.
RunDirectory directory_of(Ranks& ranks, const fs::path& path, const std::function<RunDirectory()>& of_root) {
  std::optional<RunDirectory> directory;
  ranks.on_root([&] { directory.emplace(of_root()); });
  ranks.on_some(!ranks.is_root(), [&] { directory.emplace(RunDirectory::of_root(path)); });
  return std::move(*directory);
}

}  // namespace

BatchOptions batch_options(const RunConfig& config, const TrainingState& training) {
  return {.data = config.data,
          .first_row = training.first_row,
          .last_row = training.last_row,
          .insertion = training.network.model.insertion(),
          .alignment = config.data.pack == Pack::concat ? alignment_of(config.model) : 1,
          .seed = static_cast<uint64_t>(config.run.seed),
          .shuffle = true,
          .endless = true};
}

Trainer::Trainer(OpenedRun opened, RunDirectory directory, Ranks& ranks)
    : ranks_(ranks),
      config_(std::move(opened.config)),
      evaluation_config_(evaluation_config(config_)),
      directory_(std::move(directory)),
      machine_(machine_in(std::move(opened.machine), directory_.path())),
      threads_(threads_of(config_.run, ranks)),
      corpus_(std::move(opened.corpus)),
      mixture_(std::move(opened.mixture)),
      training_(std::make_unique<TrainingState>(config_, corpus_->tokenizer().vocabulary_size(), machine_,
                                                RankPlace{ranks.rank(), ranks.size()})) {}

Trainer::~Trainer() = default;

void Trainer::load_initial_weights(const std::optional<InitialWeights>& weights) {
  if (!weights) return;
  weights->load(training_->store);
  if (training_->average) training_->average->begin_anew();
  if (!ranks_.is_root()) return;
  log_info(fmt::format(
      "{} parameters come from {}{}", weights->size(), weights->checkpoint().string(),
      weights->missing().empty() ? std::string() : fmt::format(", {} are drawn anew", weights->missing().size())));
}

void Trainer::open_batches(const std::optional<Cursor>& from) {
  const BatchOptions options = batch_options(config_, *training_);
  std::unique_ptr<BatchSource> source;
  if (mixture_) {
    const std::shared_ptr<const Mixture> mixture = mixture_->documents();
    const Tokenizer& tokenizer = corpus_->tokenizer();
    source = from ? std::make_unique<BatchSource>(mixture, tokenizer, options, *from)
                  : std::make_unique<BatchSource>(mixture, tokenizer, options);
  } else {
    source = from ? std::make_unique<BatchSource>(*corpus_, config_.data.split, options, *from)
                  : std::make_unique<BatchSource>(*corpus_, config_.data.split, options);
  }
  cursor_ = source->cursor();
  batches_ = std::make_unique<Prefetcher>(std::move(source));
}

// Files change only after configuration, corpus and checkpoint have been checked.
void Trainer::open_files() {
  remove_unfinished_checkpoints(directory_.checkpoints());
  truncate_metrics_after(directory_.metrics(), training_->step);
  remove_run_evaluations_after(directory_.path(), training_->step);
  link_best_of_run(directory_.path(), config_);
  replace_file_atomically(directory_.config(), dump_saved_config(config_));
  metrics_ = std::make_unique<MetricsLog>(directory_.metrics());
  if (config_.log.tensorboard) events_ = open_run_events(directory_.path(), config_, training_->step + 1);
}

std::unique_ptr<Trainer> Trainer::start(const RunConfig& config, const fs::path& run_directory, Ranks& ranks) {
  const Ranks::Operation operation(ranks, "opening the run");
  OpenedRun opened = OpenedRun::open(config, ranks, true);
  RunDirectory directory = directory_of(ranks, run_directory, [&] { return RunDirectory::create(run_directory); });
  return make(std::move(opened), std::move(directory), ranks, [](Trainer& trainer) { trainer.open_batches({}); });
}

std::unique_ptr<Trainer> Trainer::start_over(const fs::path& run_directory, const ResumeRequest& request,
                                             Ranks& ranks) {
  RunDirectory directory = directory_of(ranks, run_directory, [&] { return RunDirectory::open(run_directory); });
  RunConfig config;
  std::vector<std::string> changes;
  ranks.on_all([&] {
    const RunFile before = read_run_file(directory.config());
    require_no_lost_checkpoint(directory.path(), before.config);
    config = resumed_config(before.config, before, request, false);
    changes = describe_changes(before.config, config, 0);
  });
  OpenedRun opened = OpenedRun::open(config, ranks, true);
  return make(std::move(opened), std::move(directory), ranks, [&](Trainer& trainer) {
    if (ranks.is_root()) {
      log_warn(fmt::format("{}: the run ended before its first checkpoint; it begins again", run_directory.string()));
    }
    trainer.changes_ = changes;
    trainer.open_batches({});
  });
}

std::unique_ptr<Trainer> Trainer::resume(const fs::path& run_or_checkpoint, const ResumeRequest& request,
                                         Ranks& ranks) {
  const Ranks::Operation operation(ranks, "opening the run");
  ranks.on_all([&] { set_deadline_of_run(run_or_checkpoint, request, ranks); });
  const auto begins_again = [&] { return is_run_without_checkpoint(run_or_checkpoint) ? "yes" : ""; };
  if (!ranks.found_by_root(begins_again).empty()) return start_over(run_or_checkpoint, request, ranks);
  const fs::path checkpoint = resolve_checkpoint(run_or_checkpoint, ranks);
  // The path is RUN/checkpoints/step-N. The lock comes first, because a process that still trains there would remove
  // what is read.
  const fs::path run_directory = fs::absolute(checkpoint).parent_path().parent_path();
  RunDirectory directory = directory_of(ranks, run_directory, [&] { return RunDirectory::open(run_directory); });
  std::optional<CheckpointReader> reader;
  RunConfig config;
  std::vector<std::string> changes;
  ranks.on_all([&] {
    reader.emplace(open_checkpoint(checkpoint, false));
    if (!reader->has_part(moments_part_name(0))) {
      fail(ErrorKind::checkpoint,
           "{}: holds weights alone, as an imported model does; begin a run with them: quire "
           "train CONFIG init.from={}",
           checkpoint.string(), run_directory.string());
    }
    const RunConfig before = checkpoint_config(*reader);
    // The checkpoint gives the past of the run; its config.yaml gives the configuration to continue with, which may
    // include an edit, or a change of an earlier --resume that no checkpoint has yet.
    const RunFile run = read_run_file(directory.config());
    require_checkpoint_of_run(checkpoint, before, run);
    config = resumed_config(before, run, request, request.drop_state);
    require_steps_left(config, reader->step());
    changes = describe_changes(before, config, reader->step());
    for (std::string& line : lost_edits(before, run, config, request)) changes.push_back(std::move(line));
  });
  const auto is_over = [&] { return is_finished(config, reader->step(), directory.metrics()) ? "yes" : ""; };
  const bool finished = !ranks.found_by_root(is_over).empty();
  if (reader->step() == config.schedule.steps) {
    ranks.on_all([&] {
      require_no_changes(diff_configs(checkpoint_config(*reader), config), request, directory.path(),
                         config.schedule.steps, finished);
    });
  }
  if (finished) {
    if (ranks.is_root()) {
      remove_unfinished_checkpoints(directory.checkpoints());
      warn_of_cut_metrics(directory.metrics(), reader->step(), reader->meta().value("logged", int64_t{0}));
      log_info(fmt::format("{}: all {} steps are done; schedule.steps=N, N above {}, goes on",
                           directory.path().string(), config.schedule.steps, config.schedule.steps));
    }
    return nullptr;
  }
  OpenedRun opened = OpenedRun::open(config, ranks, false);
  ranks.on_all([&] {
    const CheckpointMeta meta = checkpoint_meta(*reader);
    if (opened.corpus->hash() != meta.corpus) {
      fail(ErrorKind::data,
           "{}: its checksum is {} but the run was trained on {}; resume with the corpus it began with",
           config.data.corpus, opened.corpus->hash(), meta.corpus);
    }
    if (opened.mixture) require_same_mix(meta.mix, *opened.mixture);
  });
  return make(std::move(opened), std::move(directory), ranks, [&](Trainer& trainer) {
    trainer.changes_ = changes;
    trainer.go_on_from(*reader, request.drop_state);
  });
}

// `ready` brings the opened parts to the state where the run begins or continues.
std::unique_ptr<Trainer> Trainer::make(OpenedRun opened, RunDirectory directory, Ranks& ranks,
                                       const std::function<void(Trainer&)>& ready) {
  std::unique_ptr<Trainer> trainer;
  ranks.on_all([&] {
    const std::optional<InitialWeights> weights = std::move(opened.weights);
    trainer.reset(new Trainer(std::move(opened), std::move(directory), ranks));
    trainer->load_initial_weights(weights);
    ready(*trainer);
  });
  trainer->attention_ = choose_attention(*trainer->training_, trainer->config_, trainer->machine_, ranks);
  require_same_weights(trainer->training_->store, ranks);
  ranks.on_root([&] { trainer->open_files(); });
  return trainer;
}

void Trainer::go_on_from(const CheckpointReader& reader, bool drop_state) {
  cursor_ = load_training(reader, *training_, drop_state);
  saved_step_ = training_->step;
  if (ranks_.is_root()) {
    const CheckpointMeta meta = checkpoint_meta(reader);
    if (meta.backend != machine_.backend) {
      log_warn(fmt::format(
          "the checkpoint was written with {} kernels, this run uses {}: results may differ in the last bits",
          meta.backend, machine_.backend));
    }
    if (meta.ranks != ranks_.size()) {
      log_warn(fmt::format("the checkpoint was written by {} ranks, this run has {}: results differ in the last bits",
                           meta.ranks, ranks_.size()));
    }
    warn_of_cut_metrics(directory_.metrics(), training_->step, training_->logged);
    if (training_->step > 0) train_seconds_.reset();
    if (const auto time = TrainingClock(read_metric_columns(directory_.metrics())).at(training_->step))
      train_seconds_ = time->seconds;
    const std::vector<int64_t> steps = checkpoint_steps(directory_.checkpoints());
    if (steps.front() > training_->step) {
      log_warn(fmt::format("going back to step {}: checkpoints of later steps go when the next one is written",
                           training_->step));
    }
  }
  open_batches(cursor_);
}

}  // namespace quire
