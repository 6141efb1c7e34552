// What an evaluation finds out, and how it is written down.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainers/evaluation/position_bins.h"
#include "trainers/evaluation/target_loss.h"
#include "trainers/setup/config.h"

namespace quire {

// Results of the targets that repeat what their document said long before, which need a memory.
struct RecallResult {
  int64_t tokens = 0;
  int64_t correct = 0;  // the most likely token was right
  double nll = 0;       // nats
  // How many the best guess gets right without having read what they repeat, on average; where the corpus says so.
  std::optional<double> chance = {};
};

struct DocumentResult {
  std::string name;
  int64_t tokens = 0;  // targets that count, EOS included
  int64_t words = 0;
  int64_t bytes = 0;  // without those of a first token that is left out
  double nll = 0;     // nats
  RecallResult recall;
  std::vector<PositionBin> by_position;  // as that of all documents
};

struct EvaluationResult {
  std::string split;
  std::vector<DocumentResult> documents;
  int64_t tokens = 0;
  int64_t words = 0;
  int64_t bytes = 0;
  double nll = 0;  // total nats; exactly the sum over documents, and over positions
  // Mean over targets of the number of tokens of the document that the widest mechanism sees, the current one included.
  double context_mean = 0;
  bool as_trained = true;                // reading computes what training does
  std::vector<PositionBin> by_position;  // of the text, without inserted tokens; when asked for
  bool has_bytes_by_position = false;    // tokens write the bytes of the text, and all of them count
  std::vector<TargetLoss> targets;       // each by itself, when asked for
  // Only for a corpus with marks (quire prepare --task).
  std::optional<RecallResult> recall;
  // True when every target counts but for first tokens that data.score_first_token leaves out, so that nats can be
  // divided by bytes; and, when none is left out, by words.
  bool has_text = true;
  bool has_words = true;
  double seconds = 0;
  bool complete = true;  // false when options.stop ended it early: the sums are then partial

  double loss() const { return nll / static_cast<double>(tokens); }  // nats per target
  double token_perplexity() const;
  double word_perplexity() const;  // over whitespace-separated words of the original text; NaN without has_words
  double bits_per_byte() const;    // over DocumentResult::bytes; NaN without has_text
};

// The fields of configs/OUTPUT.md; window, cache and memory are those of the configuration.
nlohmann::ordered_json to_json(const EvaluationResult& result, const RunConfig& config, int64_t rows);
// {"tokens", "nll", "perplexity", "accuracy", "chance"}
nlohmann::ordered_json recall_to_json(const RecallResult& recall);
// [{"begin", "end", "tokens", "nll", "nats_per_token", "bytes", "bits_per_byte"}, ...] of all documents or of one.
nlohmann::ordered_json positions_to_json(const EvaluationResult& result, const std::vector<PositionBin>& bins);

}  // namespace quire
