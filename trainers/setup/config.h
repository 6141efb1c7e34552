// The configuration of a run: one YAML file.
#pragma once

#include "autograd/functions/embedding.h"
#include "core/config/config.h"
#include "data/data_config.h"
#include "layers/config/model_config.h"
#include "trainers/optimizer/optimizer_config.h"
#include "trainers/optimizer/schedule.h"
#include "trainers/setup/config_choices.h"
#include "trainers/setup/previous_keys.h"
#include "trainers/setup/split_names.h"

namespace quire {

struct NonfiniteConfig {
  NonfinitePolicy policy = NonfinitePolicy::stop;
  int64_t max_skips = 3;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("policy", policy,
            {.help = "what happens at a step whose loss or gradient is not finite", .resumable = true});
    v.field("max_skips", max_skips,
            {.help = "the run ends after more skipped steps in a row than this",
             .unit = "steps",
             .min = 1,
             .resumable = true});
  }
};

struct RunSection {
  std::string name = "run";
  int64_t seed = 1;
  DeviceChoice device = DeviceChoice::automatic;
  Precision precision = Precision::automatic;
  int64_t threads = 0;
  NonfiniteConfig on_nonfinite;
  std::optional<Duration> max_wall_time;
  Duration rank_timeout{300};

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("name", name, {.help = "the run directory is runs/NAME unless --run-dir says otherwise"});
    v.field("seed", seed, {.help = "seed of the initial weights, the order of documents and dropout", .min = 0});
    v.field("device", device, {.help = "where the model lives"});
    v.field("precision", precision,
            {.help = "number type in which the model computes", .meant = "dtype amp bf16 fp16"});
    v.field("threads", threads,
            {.help = "CPU threads; 0 means one per core that the run may use, or fewer where a CPU quota (cgroup) "
                     "gives less time. More than four per core of the machine are refused. Results do not depend on "
                     "the number",
             .min = 0,
             .max = 4096,
             .resumable = true,
             .meant = "num_threads num_workers cpus cores"});
    v.section("on_nonfinite", on_nonfinite, "non-finite values");
    v.field("max_wall_time", max_wall_time,
            {.help = "after this time the run finishes its step, writes a checkpoint and exits with 75. Every quire "
                     "train counts from its own start; leave time for the step and the checkpoint",
             .min = 1,
             .resumable = true});
    v.field(
        "rank_timeout", rank_timeout,
        {.help =
             "a run on several ranks ends with exit code 6 when a rank lets the others wait for longer. A slow step "
             "must fit in; the verification of the corpus, the reading and the writing of a checkpoint may "
             "take longer while they go on",
         .min = 1,
         .resumable = true});
  }
  void check(ConfigChecker& c) const {
    c.require(precision != Precision::bf16 || device != DeviceChoice::cpu, "precision",
              "bf16 is refused on the CPU, where it is slower than f32; use f32");
  }
};

struct EvaluateConfig {
  int64_t every = 500;
  bool at_start = false;
  SplitNames split{{"valid"}};
  int64_t rows = 8;
  std::optional<int64_t> documents;
  std::optional<int64_t> tokens;
  ConfigSettings set;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("every", every,
            {.help = "steps between evaluations during training; 0: none",
             .unit = "steps",
             .min = 0,
             .resumable = true,
             .meant = "eval_every eval_interval eval_steps"});
    v.field("at_start", at_start,
            {.help = "evaluations during training begin before the first step: step 0",
             .inapplicable = every > 0 ? "" : "with evaluate.every: 0 nothing is evaluated"});
    v.field(
        "split", split,
        {.help = "split of the corpus to evaluate on, or a list of splits, as in [valid, test]; each is evaluated by "
                 "itself",
         .resumable = true});
    v.field("rows", rows,
            {.help = "documents that are read side by side; results do not depend on it",
             .min = 1,
             .max = 1 << 20,
             .resumable = true});
    v.field("documents", documents,
            {.help = "evaluations during training read only this many documents, the first ones; none: all",
             .min = 1,
             .resumable = true});
    v.field("tokens", tokens,
            {.help = "evaluations during training end after so many tokens, within a document where they must; none: "
                     "the whole split, or the first evaluate.documents of it",
             .unit = "tokens",
             .min = 1,
             .resumable = true,
             .meant = "eval_tokens eval_iters"});
    v.map("set", set, "keys with another value at evaluation, for example {data.subsequence: 1024}");
  }
};

struct CheckpointConfig {
  int64_t every = 500;
  int64_t keep = 3;
  int64_t milestones = 0;
  bool best = false;
  CheckpointErrorPolicy on_error = CheckpointErrorPolicy::stop;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("every", every,
            {.help = "steps between checkpoints; 0: one at the end of the run",
             .unit = "steps",
             .min = 0,
             .resumable = true,
             .meant = "save_every save_steps save_interval"});
    v.field("keep", keep,
            {.help = "number of newest checkpoints that are kept", .min = 1, .max = 1 << 20, .resumable = true});
    v.field(
        "milestones", milestones,
        {.help = "at steps that are multiples of this a checkpoint is written, too, and stays beside the newest ones; "
                 "0: none",
         .unit = "steps",
         .min = 0,
         .resumable = true,
         .meant = "keep_every save_total"});
    v.field(
        "best", best,
        {.help = "the checkpoint with the lowest loss in evaluations of evaluate.split, of the first one in a list, is "
                 "written after its evaluation and stays beside the newest ones; RUN/checkpoints/best names it",
         .resumable = true,
         .meant = "save_best load_best_model_at_end"});
    v.field("on_error", on_error, {.help = "what happens when a checkpoint cannot be written", .resumable = true});
  }

  bool is_milestone(int64_t step) const { return milestones > 0 && step > 0 && step % milestones == 0; }
  // Says whether a checkpoint is written after this step whatever its loss is, unless it is the last one.
  bool due(int64_t step) const { return is_milestone(step) || (every > 0 && step % every == 0); }
};

struct LogConfig {
  int64_t every = 10;
  bool norms = false;
  bool tensorboard = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("every", every,
            {.help = "steps between lines of metrics.jsonl",
             .unit = "steps",
             .min = 1,
             .resumable = true,
             .meant = "log_every log_interval logging_steps"});
    v.field("norms", norms,
            {.help = "lines of metrics.jsonl have the norms of the weights and of the gradient of every layer, which a "
                     "step computes only where it is logged",
             .resumable = true,
             .meant = "log_grad_norms watch"});
    v.field("tensorboard", tensorboard,
            {.help = "the run directory also has event files of TensorBoard: what metrics.jsonl has as scalars, the "
                     "configuration as text and hyperparameters, and at each evaluation histograms of the weights of "
                     "every parameter and of the loss of every document",
             .resumable = true,
             .meant = "report_to use_tensorboard tensorboard_dir"});
  }
};

// Terms that training steps add to the loss of the targets. They change no figure that is called loss.
struct LossConfig {
  double z_weight = 0;
  double label_smoothing = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field(
        "z_weight", z_weight,
        {.help = "weight of the z-loss, the mean over targets of the square of log(sum(exp(logits))), which keeps "
                 "logits small (PaLM has 1e-4). Training alone has it; metrics report it as z_loss, without the weight",
         .min = 0,
         .max = 1000,
         .resumable = true});
    v.field("label_smoothing", label_smoothing,
            {.help = "share of every target that is spread evenly over all ids of the projection to the vocabulary. "
                     "Training alone has it; metrics report the mean loss against equal probabilities as uniform_nll",
             .min = 0,
             .max = 0.999,
             .resumable = true});
  }
  CrossEntropyExtras extras() const { return {.smoothing = label_smoothing, .log_sum_weight = z_weight}; }
};

struct InitConfig {
  std::optional<std::string> from;
  std::vector<std::string> missing;
  std::vector<std::string> unused;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("from", from,
            {.help = "checkpoint or run directory that gives the initial weights; a resumed run does not read it",
             .path = true});
    v.field(
        "missing", missing,
        {.help = "globs of parameters that init.from does not have, or has in another shape; they are drawn as usual"});
    v.field("unused", unused, {.help = "globs of parameters of init.from that are not used"});
  }
  void check(ConfigChecker& c) const {
    c.require(from.has_value() || missing.empty(), "missing", "has no meaning without init.from");
    c.require(from.has_value() || unused.empty(), "unused", "has no meaning without init.from");
  }
};

struct RunConfig {
  RunSection run;
  DataConfig data;
  ModelConfig model;
  InitConfig init;
  LossConfig loss;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EvaluateConfig evaluate;
  CheckpointConfig checkpoint;
  LogConfig log;

  template <class Visitor>
  void fields(Visitor& v) {
    v.replaced(replaced_keys());
    v.section("run", run, "name, seed and machine");
    v.section("data", data, "what is read, and how it is cut");
    v.section("model", model, "the network");
    v.section("init", init, "weights to begin with");
    v.section("loss", loss, "what training steps add to the loss");
    v.section("optimizer", optimizer, "how weights are updated");
    v.section("schedule", schedule, "learning rate over the run");
    v.section("evaluate", evaluate, "evaluation during training");
    v.section("checkpoint", checkpoint, "what is kept on disk");
    v.section("log", log, "metrics");
  }
  void check(ConfigChecker& c) const;
};

// Instantiated once, in config_check.cpp: every file that reads or writes a configuration would compile all of its
// keys.
extern template class StructRef<RunConfig>;

}  // namespace quire
