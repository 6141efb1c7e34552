// The JSON form of a comparison.
#include <nlohmann/json.hpp>

#include "trainers/compare/comparison.h"

namespace quire {

namespace {

using CompareJson = nlohmann::ordered_json;

template <typename T>
CompareJson or_null(const std::optional<T>& value) {
  return value ? CompareJson(*value) : CompareJson();
}

CompareJson spread_json(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {{"mean", spread->mean}, {"deviation", or_null(spread->deviation)}, {"runs", spread->count}};
}

CompareJson run_json(const ComparedRun& run, const std::string& group) {
  const StoredEvaluation& evaluation = run.evaluation;
  return {{"path", run.path},
          {"group", group},
          {"name", run.config.run.name},
          {"seed", run.seed()},
          {"step", evaluation.trained.step},
          {"steps", run.config.schedule.steps},
          {"tokens_read", or_null(evaluation.trained.tokens)},
          {"train_seconds", or_null(evaluation.trained.seconds)},
          {"evaluated_now", run.evaluated_now},
          {"weights", evaluation.weights},
          {"as_trained", evaluation.as_trained},
          {"corpus", evaluation.corpus},
          {"tokenizer", evaluation.tokenizer},
          {"documents", evaluation.documents.size()},
          {"tokens", evaluation.tokens()},
          {"bytes", evaluation.bytes()},
          {"nll", evaluation.nll()},
          {"loss", evaluation.loss()},
          {"token_perplexity", std::exp(evaluation.loss())},
          {"bits_per_byte", or_null(evaluation.bits_per_byte())}};
}

CompareJson difference_json(const Comparison& comparison, const GroupDifference& of) {
  CompareJson json{{"group", comparison.groups[of.group].letter},
                   {"baseline", comparison.groups[of.baseline].letter},
                   {"metric", comparison.metrics[of.metric].name()},
                   {"documents", of.documents},
                   {"seeds", of.seeds},
                   {"paired_seeds", of.paired_seeds},
                   {"difference", nullptr},
                   {"percent", nullptr},
                   {"interval", nullptr},
                   {"by_seed", CompareJson::array()},
                   {"without", nullptr}};
  const std::string& reason = of.difference ? of.without_interval : of.without_difference;
  if (!reason.empty()) json["without"] = reason;
  if (!of.difference) return json;
  json["difference"] = of.difference->mean;
  json["percent"] = or_null(of.difference->percent);
  if (const auto interval = of.difference->interval) json["interval"] = {interval->low, interval->high};
  json["by_seed"] = of.difference->by_seed;
  return json;
}

CompareJson budget_json(const Comparison& comparison, const EqualBudget& equal, const char* unit) {
  CompareJson json{{unit, or_null(equal.budget)}, {"groups", CompareJson::array()}, {"without", nullptr}};
  if (!equal.without.empty()) json["without"] = equal.without;
  for (size_t i = 0; i < equal.groups.size(); ++i) {
    json["groups"].push_back({{"group", comparison.groups[i].letter},
                              {"steps", equal.groups[i].steps},
                              {"figure", spread_json(equal.groups[i].figure)}});
  }
  return json;
}

CompareJson groups_json(const Comparison& comparison) {
  CompareJson groups = CompareJson::array();
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    const RunGroup& group = comparison.groups[i];
    CompareJson metrics = CompareJson::object();
    for (size_t metric = 0; metric < comparison.metrics.size(); ++metric) {
      metrics[comparison.metrics[metric].name()] = spread_json(comparison.figures[i].of_metrics[metric]);
    }
    groups.push_back({{"group", group.letter},
                      {"name", group.name},
                      {"seeds", seeds_of(group, comparison.runs)},
                      {"bits_per_byte", spread_json(comparison.figures[i].bits_per_byte)},
                      {"token_perplexity", spread_json(comparison.figures[i].token_perplexity)},
                      {"loss", spread_json(comparison.figures[i].loss)},
                      {"metrics", metrics}});
  }
  return groups;
}

}  // namespace

CompareJson to_json(const Comparison& comparison) {
  CompareJson json{{"split", comparison.split},
                   {"baseline", comparison.groups[comparison.baseline].letter},
                   {"metric", name_in_json(comparison.metric)},
                   {"runs", CompareJson::array()},
                   {"groups", groups_json(comparison)},
                   {"differences", CompareJson::array()},
                   {"position_metric", name_in_json(comparison.position_metric)},
                   {"by_position", CompareJson::array()},
                   {"budget_metric", name_in_json(comparison.budget_metric)},
                   {"equal_time", budget_json(comparison, comparison.equal_time, "seconds")},
                   {"equal_tokens", budget_json(comparison, comparison.equal_tokens, "tokens")},
                   {"configuration", CompareJson::array()},
                   {"warnings", comparison.warnings}};
  for (const RunGroup& group : comparison.groups) {
    for (const size_t number : group.runs) json["runs"].push_back(run_json(comparison.runs[number], group.letter));
  }
  for (const GroupDifference& difference : comparison.differences) {
    json["differences"].push_back(difference_json(comparison, difference));
  }
  for (const PositionRow& row : comparison.positions) {
    CompareJson figures = CompareJson::array();
    for (const std::optional<Spread>& spread : row.groups) figures.push_back(spread_json(spread));
    json["by_position"].push_back({{"begin", row.begin}, {"end", row.end}, {"groups", figures}});
  }
  for (const DifferingKey& key : comparison.configuration) {
    CompareJson values = CompareJson::array();
    for (const std::string& value : key.values) values.push_back(value.empty() ? CompareJson() : CompareJson(value));
    json["configuration"].push_back({{"key", key.key}, {"values", values}});
  }
  return json;
}

}  // namespace quire
