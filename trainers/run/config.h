// The configuration of a run: one YAML file.
#pragma once

#include "core/config/config.h"
#include "data/tasks/task_config.h"
#include "layers/model_config.h"
#include "trainers/optimizer/optimizer_config.h"
#include "trainers/optimizer/schedule.h"

namespace quire {

enum class DeviceChoice { automatic, cpu, cuda };
enum class Precision { automatic, f32, f64, bf16 };
enum class NonfinitePolicy { stop, skip };
enum class PackChoice { pad, concat };
enum class SamplingChoice { documents, windows, columns };
enum class VerifyChoice { once, always };
enum class CheckpointErrorPolicy { stop, warn };

template <>
struct EnumNames<DeviceChoice> {
  static constexpr auto value = std::to_array<std::pair<DeviceChoice, std::string_view>>(
      {{DeviceChoice::automatic, "auto"}, {DeviceChoice::cpu, "cpu"}, {DeviceChoice::cuda, "cuda"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a GPU when there is one, else the CPU", "the cores of this machine", "one NVIDIA GPU"});
  static constexpr auto meant =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"gpu", "cuda"}, {"nvidia", "cuda"}});
};
template <>
struct EnumNames<Precision> {
  static constexpr auto value = std::to_array<std::pair<Precision, std::string_view>>(
      {{Precision::automatic, "auto"}, {Precision::f32, "f32"}, {Precision::f64, "f64"}, {Precision::bf16, "bf16"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"f32 on the CPU, bf16 on a GPU", "single precision", "double precision, for checks", "GPU only"});
};
template <>
struct EnumNames<NonfinitePolicy> {
  static constexpr auto value = std::to_array<std::pair<NonfinitePolicy, std::string_view>>(
      {{NonfinitePolicy::stop, "stop"}, {NonfinitePolicy::skip, "skip"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the run ends with exit code 5", "weights and moments stay, rows with such values begin anew, the run goes on"});
};
template <>
struct EnumNames<PackChoice> {
  static constexpr auto value = std::to_array<std::pair<PackChoice, std::string_view>>(
      {{PackChoice::pad, "pad"}, {PackChoice::concat, "concat"}});
};
template <>
struct EnumNames<SamplingChoice> {
  static constexpr auto value =
      std::to_array<std::pair<SamplingChoice, std::string_view>>({{SamplingChoice::documents, "documents"},
                                                                  {SamplingChoice::windows, "windows"},
                                                                  {SamplingChoice::columns, "columns"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a row reads one after the other", "random slices of the documents as one text, nothing carried",
       "the documents as one text in data.rows columns, read through"});
};
template <>
struct EnumNames<VerifyChoice> {
  static constexpr auto value = std::to_array<std::pair<VerifyChoice, std::string_view>>(
      {{VerifyChoice::once, "once"}, {VerifyChoice::always, "always"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"until the file changes; CORPUS.verified remembers it", "whenever it is opened"});
};
template <>
struct EnumNames<CheckpointErrorPolicy> {
  static constexpr auto value = std::to_array<std::pair<CheckpointErrorPolicy, std::string_view>>(
      {{CheckpointErrorPolicy::stop, "stop"}, {CheckpointErrorPolicy::warn, "warn"}});
  static constexpr auto help =
      std::to_array<std::string_view>({"the run ends with exit code 7", "a warning, but for the last checkpoint"});
};

struct NonfiniteConfig {
  NonfinitePolicy policy = NonfinitePolicy::stop;
  int64_t max_skips = 3;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("policy", policy, {.help = "what a step with a non-finite loss or gradient does", .resumable = true});
    v.field(
        "max_skips", max_skips,
        {.help = "more skipped steps in a row than this end the run", .unit = "steps", .min = 1, .resumable = true});
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

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("name", name, {.help = "the run directory is runs/NAME unless --run-dir says otherwise"});
    v.field("seed", seed, {.help = "of initial weights, document order and dropout", .min = 0});
    v.field("device", device, {.help = "where the model lives"});
    v.field("precision", precision, {.help = "type of weights and activations"});
    v.field("threads", threads,
            {.help = "CPU threads; 0 is one per core; results do not depend on it",
             .min = 0,
             .max = 4096,
             .resumable = true});
    v.section("on_nonfinite", on_nonfinite, "non-finite values");
    v.field("max_wall_time", max_wall_time,
            {.help = "after this long the step in progress ends, a checkpoint is written and quire train exits with "
                     "75; counted anew by every quire train; leave time for both",
             .min = 1,
             .resumable = true});
  }
  void check(ConfigChecker& c) const {
    c.require(precision != Precision::bf16 || device != DeviceChoice::cpu, "precision",
              "bf16 is refused on the CPU, where it is slower than f32; use f32");
  }
};

// What a run is trained on, in place of data.split of data.corpus: documents of a corpus, or of a task.
struct MixConfig {
  std::optional<std::string> corpus;
  TaskConfig task;
  std::string split = "train";
  double weight = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("corpus", corpus,
            {.help = "file made by quire prepare with the tokenizer of data.corpus; with a task, the text between its "
                     "facts (none: built-in sentences)",
             .resumable = true,
             .path = true});
    v.field("split", split,
            {.help = "the part of that corpus", .inapplicable = corpus ? "" : "there is no corpus beside it"});
    v.field("weight", weight,
            {.help = "share of the positions that are read, relative to the other entries",
             .min = 0,
             .min_exclusive = true});
    task.fields(v);
  }
  void check(ConfigChecker& c) const {
    c.require(corpus || task.task, "task", "an entry of data.mix needs a corpus or a task");
    task.check(c);
  }
};

struct DataConfig {
  std::string corpus;
  std::vector<MixConfig> mix;
  std::string split = "train";
  int64_t subsequence = 512;
  int64_t rows = 8;
  int64_t accumulate = 1;
  PackChoice pack = PackChoice::pad;
  SamplingChoice sampling = SamplingChoice::documents;
  VerifyChoice verify = VerifyChoice::once;
  std::optional<int64_t> vocabulary;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("corpus", corpus,
            {.help = "file made by quire prepare; on --resume the same one, wherever it is now",
             .resumable = true,
             .path = true});
    v.list("mix", mix,
           "to train on other documents than data.split of data.corpus, as in [{corpus: books.h5, weight: 3}, {task: "
           "passkey, length: 4096}]; data.corpus has the tokenizer and what is evaluated");
    v.field("split", split,
            {.help = "the part of the corpus to train on",
             .inapplicable = mix.empty() ? "" : "data.mix says what is trained on"});
    v.field("subsequence", subsequence,
            {.help = "model positions per row and step",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true});
    v.field(
        "rows", rows,
        {.help = "documents read side by side in one optimizer step, on all ranks together", .min = 1, .max = 1 << 20});
    v.field("accumulate", accumulate,
            {.help = "blocks the rows of a rank are cut into; less memory, same result", .min = 1, .resumable = true});
    v.field("pack", pack, {.help = "after a document's end: padding, or the next document as another segment"});
    v.field("sampling", sampling, {.help = "what a row reads; windows and columns reproduce papers"});
    v.field("verify", verify, {.help = "read the whole corpus for its checksum", .resumable = true});
    v.field("vocabulary", vocabulary,
            {.help = "number of token ids when there is no corpus (bench)", .min = 2, .max = 1 << 30});
  }
  void check(ConfigChecker& c) const {
    c.require(mix.empty() || sampling == SamplingChoice::documents, "sampling",
              "data.mix is read by documents; windows and columns read data.split of one corpus as one text");
    c.require(accumulate <= rows, "accumulate", "must not be above data.rows: a block needs a row");
    c.require(
        sampling == SamplingChoice::documents || pack == PackChoice::pad, "pack",
        "concat is about single documents and has no meaning with data.sampling windows or columns; leave it out");
  }
};

struct EvaluateConfig {
  int64_t every = 500;
  std::string split = "valid";
  int64_t rows = 8;
  std::optional<int64_t> documents;
  ConfigSettings set;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("every", every,
            {.help = "evaluate during training; 0 is never", .unit = "steps", .min = 0, .resumable = true});
    v.field("split", split, {.help = "the part of the corpus to evaluate on", .resumable = true});
    v.field("rows", rows,
            {.help = "documents read side by side; the result does not depend on it", .min = 1, .resumable = true});
    v.field("documents", documents,
            {.help = "only the first so many documents, during training", .min = 1, .resumable = true});
    v.map("set", set, "keys that differ at evaluation, e.g. {model.attention.cache.length: 1024}");
  }
};

struct CheckpointConfig {
  int64_t every = 500;
  int64_t keep = 3;
  CheckpointErrorPolicy on_error = CheckpointErrorPolicy::stop;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("every", every,
            {.help = "write a checkpoint; 0 is at the end only", .unit = "steps", .min = 0, .resumable = true});
    v.field("keep", keep, {.help = "newest checkpoints that are kept", .min = 1, .resumable = true});
    v.field("on_error", on_error, {.help = "what a checkpoint that cannot be written does", .resumable = true});
  }
};

struct LogConfig {
  int64_t every = 10;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("every", every, {.help = "a line in metrics.jsonl", .unit = "steps", .min = 1, .resumable = true});
  }
};

struct InitConfig {
  std::optional<std::string> from;
  std::vector<std::string> missing;
  std::vector<std::string> unused;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("from", from,
            {.help = "checkpoint or run directory whose weights the run begins with; a resumed run does not read it",
             .path = true});
    v.field("missing", missing,
            {.help = "globs of parameters that it does not have (or has in another shape); they are drawn as usual"});
    v.field("unused", unused, {.help = "globs of its parameters that are left out"});
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
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EvaluateConfig evaluate;
  CheckpointConfig checkpoint;
  LogConfig log;

  template <class Visitor>
  void fields(Visitor& v) {
    v.section("run", run, "name, seed and machine");
    v.section("data", data, "what is read, and how it is cut");
    v.section("model", model, "the network");
    v.section("init", init, "weights to begin with");
    v.section("optimizer", optimizer, "how weights are updated");
    v.section("schedule", schedule, "learning rate over the run");
    v.section("evaluate", evaluate, "evaluation during training");
    v.section("checkpoint", checkpoint, "what is kept on disk");
    v.section("log", log, "metrics");
  }
  void check(ConfigChecker& c) const;
};

}  // namespace quire
