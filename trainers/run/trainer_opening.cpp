// How a run begins: as a new run, from a checkpoint, or again from the beginning.
#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "data/batches/make_sampler.h"
#include "layers/model_mechanisms.h"
#include "trainers/checkpoint/training_checkpoint.h"
#include "trainers/plan/plan.h"
#include "trainers/run/evaluation_config.h"
#include "trainers/run/resume_check.h"
#include "trainers/run/trainer.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

Sampling sampling_choice(SamplingChoice choice) {
  if (choice == SamplingChoice::windows) return Sampling::windows;
  return choice == SamplingChoice::columns ? Sampling::columns : Sampling::documents;
}

std::unique_ptr<Corpus> open_corpus(const RunConfig& config) {
  const std::string& path = config.data.corpus;
  if (path.empty()) {
    fail(ErrorKind::config, "data.corpus: name the file that quire prepare made, for example data.corpus=corpus.h5");
  }
  if (!std::filesystem::exists(path)) {
    fail(ErrorKind::data, "{}: no such corpus; make one with quire prepare --output {}", path, path);
  }
  std::unique_ptr<Corpus> corpus =
      Corpus::open(path, config.data.verify == VerifyChoice::once ? Verify::once : Verify::always);
  if (config.data.mix.empty()) {
    // Making a sampler checks that the split fills the rows.
    make_sampler(corpus->split(config.data.split).offsets(), {.subsequence = config.data.subsequence,
                                                              .rows = config.data.rows,
                                                              .sampling = sampling_choice(config.data.sampling)});
  }
  if (config.evaluate.every > 0) corpus->split(config.evaluate.split);
  const int64_t vocabulary = corpus->tokenizer().vocabulary_size();
  if (config.data.vocabulary && *config.data.vocabulary != vocabulary) {
    fail(ErrorKind::config, "data.vocabulary: {} but the tokenizer of {} has {} ids; leave it out",
         *config.data.vocabulary, path, vocabulary);
  }
  return corpus;
}

// Hashes of the corpora that a run is trained on beside data.corpus.
void require_same_mix(const std::vector<std::string>& stored, const TrainingMixture& mixture) {
  if (stored == mixture.hashes()) return;
  fail(ErrorKind::data,
       "data.mix: a corpus is not the one that the run was trained on; resume with those it began with");
}

// True for a run that was killed before its first checkpoint: it can only begin again, with its configuration.
bool is_run_without_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / "config.yaml", ignored) && !fs::exists(path / "manifest.json", ignored) &&
         fs::is_directory(path / "checkpoints", ignored) && checkpoint_steps(path / "checkpoints").empty();
}

std::optional<InitialWeights> open_initial_weights(const RunConfig& config, const Corpus& corpus) {
  if (!config.init.from) return std::nullopt;
  return InitialWeights::open(config, corpus.tokenizer());
}

// Memories that lie in files lie in the run directory.
Machine machine_for(const RunConfig& config, const fs::path& run_directory) {
  Machine machine = Machine::choose(config.run);
  machine.scratch = run_directory;
  return machine;
}

}  // namespace

BatchOptions batch_options(const RunConfig& config, const TrainingState& training) {
  return {.subsequence = config.data.subsequence,
          .rows = config.data.rows,
          .first_row = training.first_row,
          .last_row = training.last_row,
          .sampling = sampling_choice(config.data.sampling),
          .pack = config.data.pack == PackChoice::pad ? Pack::pad : Pack::concat,
          .insertion = training.network.model.insertion(),
          .score_first_token = config.data.score_first_token,
          .alignment = config.data.pack == PackChoice::concat ? alignment_of(config.model) : 1,
          .seed = static_cast<uint64_t>(config.run.seed),
          .shuffle = true,
          .endless = true};
}

Trainer::Trainer(RunConfig config, std::unique_ptr<Corpus> corpus, std::unique_ptr<TrainingMixture> mixture,
                 RunDirectory directory)
    : config_(std::move(config)),
      evaluation_config_(evaluation_config(config_)),
      directory_(std::move(directory)),
      machine_(machine_for(config_, directory_.path())),
      threads_(static_cast<int>(config_.run.threads)),
      corpus_(std::move(corpus)),
      mixture_(std::move(mixture)),
      training_(std::make_unique<TrainingState>(config_, corpus_->tokenizer().vocabulary_size(), machine_)) {}

Trainer::~Trainer() = default;

void Trainer::load_initial_weights(const std::optional<InitialWeights>& weights) {
  if (!weights) return;
  weights->load(training_->store);
  if (training_->average) training_->average->begin_anew();
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
  batches_ = std::make_unique<Prefetcher>(std::move(source));
}

// Files change only when nothing can go wrong with the configuration, the corpus and the checkpoint any more.
void Trainer::open_files() {
  remove_unfinished_checkpoints(directory_.checkpoints());
  truncate_metrics_after(directory_.metrics(), training_->step);
  replace_file_atomically(directory_.config(), dump_saved_config(config_));
  metrics_ = std::make_unique<MetricsLog>(directory_.metrics());
}

std::unique_ptr<Trainer> Trainer::start(const RunConfig& config, const fs::path& run_directory) {
  // Everything that can be wrong with machine, configuration and data is found before the directory exists.
  const Machine machine = Machine::choose(config.run);
  evaluation_config(config);
  std::unique_ptr<Corpus> corpus = open_corpus(config);
  std::unique_ptr<TrainingMixture> mixture = TrainingMixture::open(config, *corpus);
  require_memory(config, machine, static_cast<int>(config.run.threads));
  const std::optional<InitialWeights> weights = open_initial_weights(config, *corpus);
  std::unique_ptr<Trainer> trainer(
      new Trainer(config, std::move(corpus), std::move(mixture), RunDirectory::create(run_directory)));
  trainer->load_initial_weights(weights);
  trainer->open_batches(std::nullopt);
  trainer->open_files();
  return trainer;
}

std::unique_ptr<Trainer> Trainer::start_over(const fs::path& run_directory, const std::vector<std::string>& overrides) {
  RunDirectory directory = RunDirectory::open(run_directory);
  const RunConfig before = load_config<RunConfig>(directory.config().string());
  require_no_lost_checkpoint(directory.path(), before);
  const RunConfig config = with_overrides(before, overrides);
  require_resumable(diff_configs(before, config));
  std::unique_ptr<Corpus> corpus = open_corpus(config);
  std::unique_ptr<TrainingMixture> mixture = TrainingMixture::open(config, *corpus);
  const std::optional<InitialWeights> weights = open_initial_weights(config, *corpus);
  std::unique_ptr<Trainer> trainer(new Trainer(config, std::move(corpus), std::move(mixture), std::move(directory)));
  trainer->load_initial_weights(weights);
  log_warn(fmt::format("{}: the run ended before its first checkpoint; it begins again", run_directory.string()));
  trainer->open_batches(std::nullopt);
  trainer->open_files();
  return trainer;
}

std::unique_ptr<Trainer> Trainer::resume(const fs::path& run_or_checkpoint, const std::vector<std::string>& overrides,
                                         bool drop_state) {
  if (is_run_without_checkpoint(run_or_checkpoint)) return start_over(run_or_checkpoint, overrides);
  const fs::path checkpoint = resolve_checkpoint(run_or_checkpoint);
  // RUN/checkpoints/step-N. The lock comes first: a process that still trains here would remove what is read.
  RunDirectory directory = RunDirectory::open(fs::absolute(checkpoint).parent_path().parent_path());
  const CheckpointReader reader = open_checkpoint(checkpoint);
  const RunConfig before = checkpoint_config(reader);
  require_checkpoint_of_run(checkpoint, before, directory.config(),
                            load_config<RunConfig>(directory.config().string()));
  const RunConfig config = with_overrides(before, overrides);
  require_resumable(diff_configs(before, config), drop_state);

  std::unique_ptr<Corpus> corpus = open_corpus(config);
  require_memory(config, Machine::choose(config.run), static_cast<int>(config.run.threads));
  const auto stored = reader.meta().at("corpus").get<std::string>();
  if (corpus->hash() != stored) {
    fail(ErrorKind::data, "{}: its checksum is {} but the run was trained on {}; resume with the corpus it began with",
         config.data.corpus, corpus->hash(), stored);
  }
  std::unique_ptr<TrainingMixture> mixture = TrainingMixture::open(config, *corpus);
  if (mixture) require_same_mix(reader.meta().value("mix", std::vector<std::string>{}), *mixture);
  std::unique_ptr<Trainer> trainer(new Trainer(config, std::move(corpus), std::move(mixture), std::move(directory)));
  trainer->cursor_ = load_training(reader, *trainer->training_, drop_state);
  trainer->saved_step_ = trainer->training_->step;
  const auto backend = reader.meta().at("backend").get<std::string>();
  if (backend != trainer->machine_.backend) {
    log_warn(
        fmt::format("the checkpoint was written with {} kernels, this run uses {}: results may differ in the last bits",
                    backend, trainer->machine_.backend));
  }
  warn_of_cut_metrics(trainer->directory_.metrics(), trainer->saved_step_, trainer->training_->logged);
  const std::vector<int64_t> steps = checkpoint_steps(trainer->directory_.checkpoints());
  if (steps.front() > trainer->saved_step_) {
    log_warn(fmt::format("going back to step {}: checkpoints of later steps go when the next one is written",
                         trainer->saved_step_));
  }
  trainer->open_batches(trainer->cursor_);
  trainer->open_files();
  return trainer;
}

}  // namespace quire
