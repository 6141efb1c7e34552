#include "trainers/checkpoint/checkpoint_meta.h"

#include "core/check.h"
#include "core/json.h"
#include "trainers/checkpoint/checkpoint.h"

namespace quire {

namespace {

constexpr int64_t kMetaVersion = 3;

std::string text_or_none(const nlohmann::json& json, const char* key) {
  return json.contains(key) ? json.at(key).get<std::string>() : std::string();
}

int64_t count_or_none(const nlohmann::json& json, const char* key) {
  return json.contains(key) ? json_integer(json.at(key)) : 0;
}

}  // namespace

nlohmann::json CheckpointMeta::to_json() const {
  nlohmann::json json{{"version", kMetaVersion}, {"step", step},
                      {"tokens", tokens},        {"rows", rows},
                      {"corpus", corpus},        {"cursor", cursor_to_json(cursor)},
                      {"backend", backend},      {"dtype", dtype},
                      {"skipped", skipped},      {"skips_in_a_row", skips_in_a_row},
                      {"logged", logged},        {"ranks", ranks}};
  if (!attention.empty()) json["attention"] = attention;
  if (!mix.empty()) json["mix"] = mix;
  return json;
}

// Keys that it does not name are ignored: earlier programs wrote their choices of products (kernels, timed).
CheckpointMeta CheckpointMeta::from_json(const nlohmann::json& json, int64_t step, const std::string& where) {
  CheckpointMeta meta;
  try {
    meta.step = json_integer(json.at("step"));
    meta.tokens = json_integer(json.at("tokens"));
    meta.rows = json_integer(json.at("rows"), 1);
    meta.corpus = json.at("corpus").get<std::string>();
    meta.cursor = cursor_from_json(json.at("cursor").get<std::string>());
    meta.backend = json.at("backend").get<std::string>();
    meta.dtype = json.at("dtype").get<std::string>();
    meta.skipped = count_or_none(json, "skipped");
    meta.skips_in_a_row = count_or_none(json, "skips_in_a_row");
    meta.logged = count_or_none(json, "logged");
    meta.attention = text_or_none(json, "attention");
    if (json.contains("ranks")) meta.ranks = json_integer(json.at("ranks"), 1);
    if (json.contains("mix")) meta.mix = json.at("mix").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::checkpoint, "{}: a value is missing or of the wrong type; use another checkpoint of the run",
         where);
  } catch (const Error& error) {
    fail(ErrorKind::checkpoint, "{}: {}", where, error.what());
  }
  if (meta.step != step) {
    fail(ErrorKind::checkpoint,
         "{}: is that of step {}, the checkpoint is of step {}; use another checkpoint of the run", where, meta.step,
         step);
  }
  return meta;
}

void require_sound_meta(const nlohmann::json& json, int64_t step, const std::string& where) {
  const auto version = json.is_object() ? json.find("version") : json.end();
  if (version == json.end() || !version->is_number_integer()) {
    fail(ErrorKind::checkpoint, "{}: is not an object with a version; use another checkpoint of the run", where);
  }
  if (*version == kMetaVersion) CheckpointMeta::from_json(json, step, where);
}

CheckpointMeta checkpoint_meta(const CheckpointReader& reader) {
  if (const nlohmann::json& version = reader.meta().at("version"); version != kMetaVersion) {
    fail(ErrorKind::checkpoint,
         "{}: has version {} of the checkpoint format, this program reads {}; use a matching quire",
         reader.path().string(), version.dump(), kMetaVersion);
  }
  return CheckpointMeta::from_json(reader.meta(), reader.step(), (reader.path() / "meta.json").string());
}

}  // namespace quire
