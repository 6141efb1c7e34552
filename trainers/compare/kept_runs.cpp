#include "trainers/compare/kept_runs.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "core/json.h"
#include "trainers/setup/previous_form.h"

namespace quire {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kKeptVersion = 1;
constexpr std::string_view kKeptKind = "quire kept run";
constexpr std::string_view kKeptMark = "{\"kind\":\"quire kept run\",";

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> number_or_none(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

// Returns a number that cannot be negative; nothing for null.
std::optional<double> amount_or_none(const Json& value) {
  const std::optional<double> amount = number_or_none(value);
  if (amount && (!value.is_number() || *amount < 0)) throw Json::out_of_range::create(401, "amount expected", nullptr);
  return amount;
}

// Returns whether a line holds a kept run, also when another program wrote it anew or damaged it.
bool is_kept_run(const std::string& line, const Json& json) {
  if (!json.is_object()) return line.starts_with(kKeptMark);
  return json.contains("kind") && json.at("kind") == kKeptKind;
}

std::string name_of(const ComparedRun& run) {
  std::error_code ignored;
  fs::path path = fs::absolute(run.path, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

// Returns the configuration with the names of corpora and of the run that it begins from alone: their folders are those
// of one machine.
std::string kept_config(RunConfig config) {
  const auto cut = [](std::string& path) { path = fs::path(path).filename().string(); };
  cut(config.data.corpus);
  for (auto& part : config.data.mix) {
    if (part.corpus) cut(*part.corpus);
  }
  if (config.init.from) cut(*config.init.from);
  return dump_config(config);
}

Json point_json(const CurvePoint& point) {
  return {{"step", point.step},
          {"tokens", point.tokens},  // NaN is null in JSON
          {"seconds", point.seconds},
          {"evaluated", point.evaluated},
          {"loss", point.loss},
          {"bits_per_byte", or_null(point.bits_per_byte)},
          {"recall_accuracy", or_null(point.recall_accuracy)}};
}

CurvePoint parse_point(const Json& json) {
  CurvePoint point;
  point.step = json_integer(json.at("step"));
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  point.tokens = amount_or_none(json.at("tokens")).value_or(kNone);
  point.seconds = amount_or_none(json.at("seconds")).value_or(kNone);
  point.evaluated = json_integer(json.at("evaluated"));
  point.loss = json.at("loss").get<double>();
  point.bits_per_byte = number_or_none(json.at("bits_per_byte"));
  point.recall_accuracy = number_or_none(json.at("recall_accuracy"));
  return point;
}

ComparedRun parse_run(const Json& json, const std::string& where) {
  ComparedRun run;
  run.path = json.at("name").get<std::string>();
  run.variant = json.at("variant").get<std::string>();
  run.config = read_written_config(json.at("config").get<std::string>(), where);
  for (const Json& origin : json.at("origins")) {
    run.origins.push_back(read_written_config(origin.get<std::string>(), where));
  }
  run.final_tokens = amount_or_none(json.at("tokens"));
  run.final_seconds = amount_or_none(json.at("seconds"));
  for (const Json& point : json.at("curve")) run.curve.push_back(parse_point(point));
  run.evaluation = parse_stored_evaluation(json.at("evaluation"));
  run.newest_checkpoint = run.evaluation.trained.step;
  return run;
}

}  // namespace

std::string kept_text(const std::vector<ComparedRun>& runs) {
  std::string text;
  for (const ComparedRun& run : runs) {
    Json json{{"kind", kKeptKind},
              {"version", kKeptVersion},
              {"name", name_of(run)},
              {"variant", run.variant},
              {"config", kept_config(run.config)},
              {"origins", Json::array()},
              {"tokens", or_null(run.final_tokens)},
              {"seconds", or_null(run.final_seconds)},
              {"curve", Json::array()},
              {"evaluation", Json::parse(to_text(run.evaluation))}};
    for (const RunConfig& origin : run.origins) json["origins"].push_back(kept_config(origin));
    for (const CurvePoint& point : run.curve) json["curve"].push_back(point_json(point));
    text += json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

bool is_kept_file(const fs::path& file) {
  const std::string begin = first_bytes(file, kKeptMark.size());
  const size_t at = begin.find_first_not_of("\xEF\xBB\xBF \t");  // a byte order mark
  if (at == std::string::npos || begin[at] != '{') return false;
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  return is_kept_run(line, parse_json<Json>(line));
}

std::vector<ComparedRun> read_kept_runs(const fs::path& file) {
  std::istringstream lines(read_text_file(file, {.kind = ErrorKind::data, .max_bytes = int64_t{1} << 30}));
  std::vector<ComparedRun> runs;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = fmt::format("{}:{}", file.string(), ++number);
    const auto json = parse_json<Json>(line);
    if (!is_kept_run(line, json)) {
      if (number == 1)
        fail(ErrorKind::data, "{}: is no file of kept runs, as quire compare --keep writes", file.string());
      fail(ErrorKind::data, "{}: is no run that quire compare --keep wrote", where);
    }
    try {
      if (json.at("version") != kKeptVersion) fail(ErrorKind::data, "{}: was kept by another version of quire", where);
      ComparedRun& run = runs.emplace_back(parse_run(json, where));
      run.path = (file / run.path).string();
    } catch (const nlohmann::json::exception&) {
      fail(ErrorKind::data, "{}: is a damaged run", where);
    }
  }
  if (runs.empty()) fail(ErrorKind::data, "{}: holds no runs", file.string());
  return runs;
}

}  // namespace quire
