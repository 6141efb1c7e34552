#include "trainers/evaluation/evaluation_result.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/json.h"

namespace quire {

namespace {

// Returns {"kind", and the options that may differ at evaluation}, without those that have no meaning beside the
// others.
nlohmann::ordered_json kind_to_json(const KindConfig& config) {
  nlohmann::ordered_json json{{"kind", config.kind}};
  config.options.visit([&](const ConfigStruct& options) {
    const ConfigNode written = write_config(options);
    for (const ConfigSetting& setting : list_settings(options)) {
      if (!setting.at_evaluation || written.at(setting.key) == nullptr) continue;
      // Numbers and booleans are written as such, none as null, everything else as text.
      const auto value = parse_json<nlohmann::ordered_json>(setting.value == "none" ? "null" : setting.value);
      json[setting.key] = value.is_discarded() ? nlohmann::ordered_json(setting.value) : value;
    }
  });
  return json;
}

}  // namespace

double EvaluationResult::token_perplexity() const {
  return std::exp(nll / static_cast<double>(tokens));
}
double EvaluationResult::word_perplexity() const {
  if (!has_words) return std::nan("");
  return std::exp(nll / static_cast<double>(words));
}
double EvaluationResult::bits_per_byte() const {
  if (!has_text) return std::nan("");
  return nll / (std::numbers::ln2 * static_cast<double>(bytes));
}

namespace {

nlohmann::ordered_json harness_to_json(const EvaluationResult& result) {
  if (!result.harness) return nullptr;
  const auto bytes = static_cast<double>(result.bytes);
  const double nll = result.harness->nll;
  return {{"words", result.harness->words},
          {"nll", nll},
          {"word_perplexity", std::exp(nll / static_cast<double>(result.harness->words))},
          {"byte_perplexity", std::exp(nll / bytes)},
          {"bits_per_byte", nll / (std::numbers::ln2 * bytes)}};
}

}  // namespace

nlohmann::ordered_json to_json(const EvaluationResult& result, const RunConfig& config, int64_t rows) {
  nlohmann::ordered_json json{
      {"split", result.split},
      {"documents", result.documents.size()},
      {"tokens", result.tokens},
      {"words", result.words},
      {"bytes", result.bytes},
      {"nll", result.nll},
      {"token_perplexity", result.token_perplexity()},
      {"word_perplexity", result.word_perplexity()},
      {"bits_per_byte", result.bits_per_byte()},
      {"attention", kind_to_json(config.model.attention.mechanism)},
      {"memory", nlohmann::ordered_json::array()},
      {"stack", kind_to_json(config.model.stack.mechanism)},
      {"subsequence", config.data.subsequence},
      {"score_first_token", config.data.score_first_token},
      {"rows", result.stride ? rows : std::min<int64_t>(rows, static_cast<int64_t>(result.documents.size()))},
      {"stride", result.stride ? nlohmann::ordered_json(*result.stride) : nlohmann::ordered_json()},
      {"last", result.last ? nlohmann::ordered_json(*result.last) : nlohmann::ordered_json()},
      {"context_mean", result.context_mean},
      {"as_trained", result.as_trained},
      {"seconds", result.seconds},
  };
  json["harness"] = harness_to_json(result);
  if (result.recall) json["recall"] = recall_to_json(*result.recall);
  for (const MemoryConfig& memory : config.model.memory) {
    nlohmann::ordered_json entry = kind_to_json(memory.mechanism);
    entry["layers"] = memory.layers;
    json["memory"].push_back(std::move(entry));
  }
  if (!config.model.layer_overrides.empty()) {
    for (const LayerConfig& layer : config.model.layer_configs()) {
      json["layers"].push_back(kind_to_json(layer.attention.mechanism));
    }
  }
  return json;
}

nlohmann::ordered_json recall_to_json(const RecallResult& recall) {
  const auto tokens = static_cast<double>(recall.tokens);
  const bool any = recall.tokens > 0;
  const auto share = [&](double count) {
    return any ? nlohmann::ordered_json(count / tokens) : nlohmann::ordered_json();
  };
  return {{"tokens", recall.tokens},
          {"nll", recall.nll},
          {"perplexity", any ? nlohmann::ordered_json(std::exp(recall.nll / tokens)) : nlohmann::ordered_json()},
          {"accuracy", share(static_cast<double>(recall.correct))},
          {"chance", recall.chance ? share(*recall.chance) : nlohmann::ordered_json()}};
}

nlohmann::ordered_json positions_to_json(const EvaluationResult& result, const std::vector<PositionBin>& bins) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PositionBin& bin : bins) {
    const double nll = bin.nll.value();
    list.push_back(
        {{"begin", bin.begin},
         {"end", bin.end},
         {"tokens", bin.tokens},
         {"nll", nll},
         {"nats_per_token",
          bin.tokens > 0 ? nlohmann::ordered_json(nll / static_cast<double>(bin.tokens)) : nlohmann::ordered_json()},
         {"bytes", result.has_bytes_by_position ? nlohmann::ordered_json(bin.bytes) : nlohmann::ordered_json()},
         {"bits_per_byte", result.has_bytes_by_position && bin.bytes > 0
                               ? nlohmann::ordered_json(nll / (std::numbers::ln2 * static_cast<double>(bin.bytes)))
                               : nlohmann::ordered_json()}});
  }
  return list;
}

}  // namespace quire
