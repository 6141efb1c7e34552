// A training run from its first step to its last: batches, steps, metrics, evaluation, checkpoints, resuming, stopping.
// Every rank has a trainer, and all make the same calls. Only root writes the run directory, except the files of a
// checkpoint with data of other ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "data/batches/prefetcher.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/run/event_file.h"
#include "trainers/run/metrics.h"
#include "trainers/run/opened_run.h"
#include "trainers/run/resume_check.h"
#include "trainers/run/run_directory.h"
#include "trainers/run/run_evaluations.h"
#include "trainers/run/step_line.h"
#include "trainers/step/step.h"

namespace quire {

enum class RunOutcome { finished, stopped };  // stopped: on request, and resumable

class Trainer {
 public:
  // Starts a new run in an empty directory. The ranks must outlive the trainer.
  static std::unique_ptr<Trainer> start(const RunConfig& config, const std::filesystem::path& run_directory,
                                        Ranks& ranks);
  // Continues from a run directory's newest whole checkpoint, or from the given one; a run that was killed before its
  // first checkpoint begins again. Only resumable keys may change. The number of ranks may differ. Returns nullptr, and
  // writes nothing, for a run that has no step left; throws Error(config) when the request would change something in
  // such a run.
  static std::unique_ptr<Trainer> resume(const std::filesystem::path& run_or_checkpoint, const ResumeRequest& request,
                                         Ranks& ranks);
  ~Trainer();

  // stop is called after every step and during evaluation; it returns the reason to stop, or an empty text. All ranks
  // stop together when one of them has a reason.
  RunOutcome run(const std::function<std::string()>& stop);

  const RunConfig& config() const { return config_; }
  const TrainingState& training() const { return *training_; }
  const std::filesystem::path& directory() const { return directory_.path(); }

 private:
  Trainer(OpenedRun opened, RunDirectory directory, Ranks& ranks);
  static std::unique_ptr<Trainer> start_over(const std::filesystem::path& run_directory, const ResumeRequest& request,
                                             Ranks& ranks);
  static std::unique_ptr<Trainer> make(OpenedRun opened, RunDirectory directory, Ranks& ranks,
                                       const std::function<void(Trainer&)>& ready);
  void go_on_from(const CheckpointReader& reader, bool drop_state);
  void load_initial_weights(const std::optional<InitialWeights>& weights);
  void open_batches(const std::optional<Cursor>& from);
  void open_files();
  void log_step(const StepResult& result, double seconds, double exchange_seconds, int64_t targets, int64_t steps);
  std::string describe_ranks() const;
  std::string describe_reading() const;  // how much of the corpus the steps read
  bool evaluation_due() const;           // before the first step, or after the last one made
  // Returns the splits whose evaluation is due, and of which metrics.jsonl has none for this step.
  std::vector<std::string> splits_to_evaluate() const;
  void warn_of_skip(const StepResult& result) const;
  // Evaluates the splits one after the other; false when it was stopped.
  bool evaluate_now(const std::vector<std::string>& splits, const std::function<std::string()>& stop);
  EvaluationResult evaluate_split(const std::string& split, const std::function<std::string()>& stop);
  ParameterStore& evaluated_weights() const;  // the trained ones, or their average
  StoredEvaluation stored(const EvaluationResult& result) const;
  // Writes a checkpoint when the evaluation is the best one so far (checkpoint.best). Returns how it is to be stored.
  ReplaceBest save_best(const EvaluationResult& result);
  void record(const EvaluationResult& result, ReplaceBest replace);  // in run directory, metrics and log
  void append_events(const nlohmann::ordered_json& line, const EvaluationResult& result);
  std::string ask(const std::function<std::string()>& stop);  // the reason to stop, on all ranks
  void save();
  bool try_to_save();  // false when it failed; checkpoint.on_error says whether a failure stops the run

  Ranks& ranks_;
  RunConfig config_;
  RunConfig evaluation_config_;
  RunDirectory directory_;
  Machine machine_;
  ThreadPool threads_;
  std::unique_ptr<Corpus> corpus_;
  std::unique_ptr<TrainingMixture> mixture_;  // nullptr: data.split of data.corpus
  std::unique_ptr<TrainingState> training_;
  std::vector<std::string> attention_;  // for the log: the chosen kernels
  std::vector<std::string> changes_;    // for the log: keys that differ from the checkpoint's configuration
  std::unique_ptr<BatchStream> batches_;
  Cursor cursor_;                        // as of the batch last consumed
  std::unique_ptr<MetricsLog> metrics_;  // on root
  std::unique_ptr<EventFile> events_;    // on root; with log.tensorboard
  std::optional<int64_t> saved_step_;
  std::optional<double> train_seconds_ = 0.0;  // of steps, over all processes of the run; nothing where no metrics tell
  StepLine line_{std::nullopt};
};

// Returns the options of one rank's batches. Also for tests.
BatchOptions batch_options(const RunConfig& config, const TrainingState& training);

}  // namespace quire
