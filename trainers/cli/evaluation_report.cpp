#include "trainers/cli/evaluation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "trainers/cli/program.h"

namespace quire {

namespace {

double bits_per_byte(const EvaluationResult& result, const DocumentResult& document) {
  return result.has_text ? document.nll / (std::log(2.0) * static_cast<double>(document.bytes)) : std::nan("");
}

nlohmann::ordered_json document_json(const EvaluationResult& result, const DocumentResult& document, bool by_position) {
  nlohmann::ordered_json json{{"name", document.name},   {"tokens", document.tokens},
                              {"words", document.words}, {"bytes", document.bytes},
                              {"nll", document.nll},     {"bits_per_byte", bits_per_byte(result, document)}};
  if (result.recall) json["recall"] = recall_to_json(document.recall);
  if (by_position) json["by_position"] = positions_to_json(result, document.by_position);
  return json;
}

void print_recall(const RecallResult& recall) {
  const auto tokens = static_cast<double>(recall.tokens);
  print(fmt::format("  recall: {} tokens, perplexity {:.4f}, {:.1f} % most likely{}\n", recall.tokens,
                    std::exp(recall.nll / tokens), 100 * static_cast<double>(recall.correct) / tokens,
                    recall.chance ? fmt::format(" ({:.1f} % by chance)", 100 * *recall.chance / tokens) : ""));
}

// Prints losses by position. Bits per byte count the bytes of a bin; the end of a document has none.
void print_positions(const EvaluationResult& result) {
  print(fmt::format("  {:>22} {:>12} {:>14}{}\n", "position", "targets", "nats per token",
                    result.has_bytes_by_position ? "  bits per byte" : ""));
  for (const PositionBin& bin : result.by_position) {
    if (bin.tokens == 0) continue;
    std::string line = fmt::format("  {:>22} {:>12} {:>14.4f}", fmt::format("{}..{}", bin.begin, bin.end - 1),
                                   bin.tokens, bin.nll.value() / static_cast<double>(bin.tokens));
    if (result.has_bytes_by_position && bin.bytes > 0) {
      line += fmt::format(" {:>14.4f}", bin.nll.value() / (std::log(2.0) * static_cast<double>(bin.bytes)));
    }
    print(line + "\n");
  }
}

void print_documents(const EvaluationResult& result) {
  for (const DocumentResult& document : result.documents) {
    std::string line = fmt::format("  {:<32} {:>10} bytes", document.name, document.bytes);
    if (result.has_text) line += fmt::format("  {:.4f} bits per byte", bits_per_byte(result, document));
    if (document.recall.tokens > 0) {
      line += fmt::format("  {}/{} recalled", document.recall.correct, document.recall.tokens);
    }
    print(line + "\n");
  }
}

void print_details(const EvaluationResult& result, const ReportDetails& details) {
  if (details.by_position) print_positions(result);
  if (details.documents) print_documents(result);
}

bool is_average(const OpenedEvaluation& opened) {
  return opened.model->weights() == Weights::average;
}

constexpr size_t kNumberWidth = 16;  // of columns with a figure

std::string cells(const std::vector<std::string>& texts, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < texts.size(); ++i) line += fmt::format("  {:>{}}", texts[i], widths[i]);
  return line + "\n";
}

}  // namespace

nlohmann::ordered_json evaluation_json(const OpenedEvaluation& opened, const PlannedEvaluation& planned,
                                       const EvaluationResult& result, const ReportDetails& details) {
  nlohmann::ordered_json json;
  for (const auto& [key, value] : planned.swept) {
    const auto parsed = parse_json<nlohmann::ordered_json>(value);
    json["set"][key] = parsed.is_discarded() ? nlohmann::ordered_json(value) : parsed;
  }
  json.update(to_json(result, planned.config, planned.config.evaluate.rows));
  json["step"] = opened.model->step();
  json["weights"] = is_average(opened) ? "average" : "trained";
  if (details.documents) {
    for (const DocumentResult& document : result.documents) {
      json["by_document"].push_back(document_json(result, document, details.by_position));
    }
  }
  if (details.by_position) json["by_position"] = positions_to_json(result, result.by_position);
  return json;
}

void print_evaluation(const OpenedEvaluation& opened, const PlannedEvaluation& planned, const EvaluationResult& result,
                      const ReportDetails& details) {
  print(fmt::format("{}: split {} of {}{}\n", opened.model->checkpoint().string(), result.split,
                    planned.config.data.corpus, is_average(opened) ? ", average of the weights" : ""));
  print(fmt::format("  documents {}  tokens {}  words {}  bytes {}\n", result.documents.size(), result.tokens,
                    result.words, result.bytes));
  if (result.has_text) print(fmt::format("  bits per byte    {:.4f}\n", result.bits_per_byte()));
  print(fmt::format("  token perplexity {:.4f}\n", result.token_perplexity()));
  if (result.has_words) print(fmt::format("  word perplexity  {:.2f}\n", result.word_perplexity()));
  if (result.recall && result.recall->tokens > 0) print_recall(*result.recall);
  print(fmt::format("  mean context {:.0f} tokens  {:.1f} s, {:.0f} tokens/s\n", result.context_mean, result.seconds,
                    static_cast<double>(result.tokens) / result.seconds));
  print_details(result, details);
}

EvaluationTable::EvaluationTable(const OpenedEvaluation& opened) {
  const PlannedEvaluation& first = opened.planned.front();
  std::vector<std::string> names{"split"};
  size_t longest = names.front().size();
  for (const PlannedEvaluation& planned : opened.planned) longest = std::max(longest, planned.split.size());
  widths_.push_back(longest);
  for (size_t i = 0; i < first.swept.size(); ++i) {
    longest = first.swept[i].first.size();
    for (const PlannedEvaluation& planned : opened.planned) {
      longest = std::max(longest, planned.swept[i].second.size());
    }
    names.push_back(first.swept[i].first);
    widths_.push_back(longest);
  }
  for (const char* figure :
       {"tokens", "bits per byte", "token perplexity", "word perplexity", "recall", "mean context", "tokens/s"}) {
    names.emplace_back(figure);
    widths_.push_back(kNumberWidth);
  }
  print(fmt::format("{}: {}{}\n", opened.model->checkpoint().string(), first.config.data.corpus,
                    is_average(opened) ? ", average of the weights" : ""));
  print(cells(names, widths_));
}

void EvaluationTable::print_line(const PlannedEvaluation& planned, const EvaluationResult& result,
                                 const ReportDetails& details) const {
  std::vector<std::string> texts{planned.split};
  for (const auto& [key, value] : planned.swept) texts.push_back(value);
  const bool recalls = result.recall && result.recall->tokens > 0;
  texts.push_back(std::to_string(result.tokens));
  texts.push_back(result.has_text ? fmt::format("{:.4f}", result.bits_per_byte()) : "-");
  texts.push_back(fmt::format("{:.4f}", result.token_perplexity()));
  texts.push_back(result.has_words ? fmt::format("{:.2f}", result.word_perplexity()) : "-");
  texts.push_back(recalls ? fmt::format("{:.1f} %", 100 * static_cast<double>(result.recall->correct) /
                                                        static_cast<double>(result.recall->tokens))
                          : "-");
  texts.push_back(fmt::format("{:.0f}", result.context_mean));
  texts.push_back(fmt::format("{:.0f}", static_cast<double>(result.tokens) / result.seconds));
  print(cells(texts, widths_));
  print_details(result, details);
  flush_output();
}

}  // namespace quire
