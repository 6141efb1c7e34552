#include "trainers/look/inspection.h"

#include <algorithm>

#include "core/check.h"
#include "core/files/hdf5_file.h"
#include "core/files/output_file.h"
#include "data/corpus/corpus.h"
#include "trainers/checkpoint/checkpoint_meta.h"
#include "trainers/checkpoint/row_state.h"
#include "trainers/checkpoint/stored_moments.h"
#include "trainers/checkpoint/training_checkpoint.h"
#include "trainers/run/metrics.h"
#include "trainers/run/resume_check.h"
#include "trainers/run/run_directory.h"

namespace quire {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json document_json(const Split& split, int64_t document) {
  return {{"name", split.name(document)}, {"tokens", split.length(document)}, {"bytes", split.bytes(document)}};
}

int64_t bytes_of(const std::vector<NamedTensor>& tensors) {
  int64_t total = 0;
  for (const NamedTensor& named : tensors) total += named.tensor.bytes();
  return total;
}

// Returns the part of a parameter: "blocks.3.mlp.up.weight" belongs to "blocks.N.mlp".
std::string part_name(const std::string& name) {
  std::string part;
  size_t begin = 0;
  for (int component = 0; component < 3 && begin < name.size(); ++component) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (component > 0 && end == name.size()) break;  // the last component is the kind of tensor, not a place
    const std::string text = name.substr(begin, end - begin);
    const bool is_index = text.find_first_not_of("0123456789") == std::string::npos;
    part = join_key(part, is_index ? "N" : text);
    begin = end + 1;
  }
  return part;
}

Json parameters_json(const CheckpointPart& model, bool every_parameter) {
  constexpr std::string_view kBuffer = "buffer.";
  Json parts = Json::array();
  Json list = Json::array();
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t buffers = 0;
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> by_part;
  for (const NamedTensor& named : model.tensors) {
    const Tensor& tensor = named.tensor;
    if (every_parameter) {
      Json shape = Json::array();
      for (int axis = 0; axis < tensor.rank(); ++axis) shape.push_back(tensor.dim(axis));
      list.push_back(
          {{"name", named.name}, {"shape", shape}, {"dtype", name_of(tensor.dtype())}, {"bytes", tensor.bytes()}});
    }
    if (named.name.rfind(kBuffer, 0) == 0) {
      buffers += tensor.bytes();
      continue;
    }
    const std::string part = part_name(named.name);
    auto found = std::find_if(by_part.begin(), by_part.end(), [&](const auto& entry) { return entry.first == part; });
    if (found == by_part.end()) found = by_part.insert(by_part.end(), {part, {0, 0}});
    found->second.first += tensor.numel();
    found->second.second += tensor.bytes();
    count += tensor.numel();
    bytes += tensor.bytes();
  }
  for (const auto& [name, size] : by_part) {
    parts.push_back({{"name", name}, {"count", size.first}, {"bytes", size.second}});
  }
  Json json{{"count", count}, {"bytes", bytes}, {"buffer_bytes", buffers}, {"parts", parts}};
  if (every_parameter) json["list"] = list;
  return json;
}

// Returns the rows of one state file.
Json rows_json(const RowRange& range, const SavedRows& saved, const Cursor& cursor) {
  Json rows = Json::array();
  for (int64_t row = range.begin; row < range.end; ++row) {
    Json json{{"row", row}};
    const auto index = static_cast<size_t>(row);
    const bool reads = index < cursor.rows.size() && cursor.rows[index].place >= 0;
    json["place"] = reads ? Json(cursor.rows[index].place) : Json();
    json["offset"] = reads ? Json(cursor.rows[index].offset) : Json();
    json["lengths"] = Json::object();
    for (const NamedTensor& named : saved.counts) {
      if (!named.name.ends_with(".length")) continue;
      json["lengths"][named.name.substr(0, named.name.size() - 7)] =
          named.tensor.to_vector<int64_t>().at(static_cast<size_t>(row - range.begin));
    }
    rows.push_back(json);
  }
  return rows;
}

Json inspect_one_checkpoint(const fs::path& path, bool every_parameter) {
  const CheckpointReader reader = open_checkpoint(path);
  const CheckpointMeta meta = checkpoint_meta(reader);
  const RunConfig config = checkpoint_config(reader);
  int64_t file_bytes = 0;
  for (const auto& entry : fs::directory_iterator(reader.path())) {
    if (entry.is_regular_file()) file_bytes += static_cast<int64_t>(entry.file_size());
  }
  Json json{{"kind", "checkpoint"},
            {"path", reader.path().string()},
            {"verified", true},
            {"step", reader.step()},
            {"steps", config.schedule.steps},
            {"tokens", meta.tokens},
            {"skipped", meta.skipped},
            {"file_bytes", file_bytes},
            {"dtype", meta.dtype},
            {"backend", meta.backend},
            {"corpus", meta.corpus},
            {"tokenizer", checkpoint_tokenizer(reader)->kind()},
            {"parameters", parameters_json(reader.read_part("model"), every_parameter)}};
  // Counts moments of all ranks: a moment that two ranks share counts as two tensors.
  int64_t moments = 0;
  int64_t moment_bytes = 0;
  for (const std::string& part : reader.parts()) {
    if (!is_moments_part(part)) continue;
    reader.visit_part(part, [&](const NamedTensor& moment) {
      ++moments;
      moment_bytes += moment.tensor.bytes();
    });
  }
  json["optimizer"] = {{"kind", name_in_config(config.optimizer.kind)},
                       {"tensors", moments},
                       {"bytes", moment_bytes},
                       {"groups", Json::array()}};
  if (!config.optimizer.groups.empty()) {
    ParameterStore store;
    const Network declared(store, config.model, checkpoint_tokenizer(reader)->vocabulary_size(), DType::f32);
    for (const std::string& line : describe_groups(store, config.optimizer))
      json["optimizer"]["groups"].push_back(line);
  }
  json["average"] = nullptr;
  if (config.optimizer.ema.decay) {
    json["average"] = {{"decay", *config.optimizer.ema.decay}, {"bytes", bytes_of(reader.read_part("ema").tensors)}};
  }
  Json rows = Json::array();
  int64_t state_bytes = 0;
  for (const RowRange& range : row_ranges(reader)) {
    const SavedRows saved = read_saved_rows(reader, range);
    state_bytes += bytes_of(saved.counts) + (range.end - range.begin) * saved.row_bytes;
    for (const Json& row : rows_json(range, saved, meta.cursor)) rows.push_back(row);
  }
  json["state"] = {{"bytes", state_bytes}, {"next_place", meta.cursor.next_place}, {"rows", rows}};
  json["config"] = dump_config_minimal(config);
  return json;
}

}  // namespace

Inspected what_is(const fs::path& given) {
  constexpr const char* kHint = "give a corpus, a checkpoint or a run directory";
  const fs::path path = given.has_filename() ? given : given.parent_path();
  std::error_code error;
  if (!fs::exists(path, error)) fail(ErrorKind::config, "{}: no such file or folder; {}", path.string(), kHint);
  if (fs::is_directory(path, error)) {
    if (checkpoint_step(path.filename().string()) || fs::exists(path / "manifest.json")) return Inspected::checkpoint;
    if (fs::exists(path / "config.yaml")) return Inspected::run;
    if (!checkpoint_steps(path).empty()) return Inspected::checkpoint;
    fail_for_runs_below(path);
  } else if (fs::exists(manifest_path(path)) || first_bytes(path, kHdf5Signature.size()) == kHdf5Signature) {
    return Inspected::corpus;
  }
  fail(ErrorKind::config, "{}: is no corpus, no checkpoint and no run directory, which is what can be inspected",
       path.string());
}

Json inspect_corpus(const fs::path& path) {
  const std::unique_ptr<Corpus> corpus = Corpus::open(path);
  const CorpusManifest& manifest = corpus->manifest();
  Json json{{"kind", "corpus"},
            {"path", path.string()},
            {"verified", true},
            {"file_bytes", manifest.size},
            {"checksum", manifest.checksum},
            {"tokenizer", manifest.tokenizer},
            {"vocabulary", manifest.vocabulary},
            {"word_rule", corpus->word_rule()},
            {"left_out", manifest.left_out},
            {"splits", Json::array()}};
  for (const std::string& name : corpus->split_names()) {
    const Split& split = corpus->split(name);
    const SplitTotals& totals = split.totals();
    Json entry{{"name", name},          {"documents", totals.documents}, {"tokens", totals.tokens},
               {"bytes", totals.bytes}, {"words", totals.words},         {"marked", split.marked()}};
    if (split.documents() > 0) {
      int64_t longest = 0;
      int64_t shortest = 0;
      for (int64_t document = 1; document < split.documents(); ++document) {
        if (split.length(document) > split.length(longest)) longest = document;
        if (split.length(document) < split.length(shortest)) shortest = document;
      }
      entry["longest"] = document_json(split, longest);
      entry["shortest"] = document_json(split, shortest);
    }
    json["splits"].push_back(entry);
  }
  return json;
}

Json inspect_checkpoint(const fs::path& given, bool every_parameter) {
  Json json;
  use_checkpoint(given, [&](const fs::path& path) { json = inspect_one_checkpoint(path, every_parameter); });
  return json;
}

Json inspect_run(const fs::path& path) {
  const RunConfig config = read_run_file(path / "config.yaml").config;
  Json json{{"kind", "run"}, {"path", path.string()}, {"name", config.run.name}, {"steps", config.schedule.steps}};
  std::optional<int64_t> latest;
  Json checkpoints = Json::array();
  const fs::path folder = path / "checkpoints";
  for (const int64_t step : checkpoint_steps(folder)) {
    Json entry{{"step", step}, {"damage", nullptr}};
    try {
      const fs::path checkpoint = folder / checkpoint_name(step);
      CheckpointReader::open(checkpoint);
      if (!latest) latest = step;
    } catch (const Error& error) {
      if (!fs::exists(folder / checkpoint_name(step))) continue;  // the run has removed it meanwhile
      entry["damage"] = error.what();
    }
    checkpoints.push_back(entry);
  }
  json["latest"] = latest ? Json(*latest) : Json();
  const std::optional<int64_t> best = linked_best_step(folder);
  json["best"] = best ? Json(*best) : Json();
  const bool lost = step_of_written_checkpoint(config, last_logged_step(path / "metrics.jsonl", INT64_MAX)).has_value();
  json["state"] = RunDirectory::is_in_use(path)      ? "running"
                  : !latest && !checkpoints.empty()  ? "all its checkpoints are damaged"
                  : !latest && lost                  ? "its checkpoints are gone"
                  : !latest                          ? "no checkpoint yet: --resume begins again"
                  : *latest >= config.schedule.steps ? "finished"
                                                     : "stopped: --resume goes on";
  json["checkpoints"] = checkpoints;
  json["last_metrics"] = nullptr;
  json["last_evaluation"] = nullptr;
  for (const Json& line : read_metrics(path / "metrics.jsonl")) {
    json[line.contains("evaluation") ? "last_evaluation" : "last_metrics"] = line;
  }
  json["config"] = dump_config_minimal(config);
  return json;
}

}  // namespace quire
