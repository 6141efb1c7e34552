// The results of an evaluation, and their JSON form.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainers/evaluation/position_bins.h"
#include "trainers/evaluation/target_loss.h"
#include "trainers/setup/config.h"

namespace quire {

// Results for the targets that repeat an earlier part of their document, for which a model needs memory.
struct RecallResult {
  int64_t tokens = 0;
  int64_t correct = 0;  // targets whose most likely token was right
  double nll = 0;       // nats
  // Mean number of targets that the best guess gets right without having read the earlier part; nothing where the
  // corpus has no such number.
  std::optional<double> chance = {};
};

struct DocumentResult {
  std::string name;
  int64_t tokens = 0;  // targets that count, EOS included
  int64_t words = 0;
  int64_t bytes = 0;  // without the bytes of a first token that does not count
  double nll = 0;     // nats
  RecallResult recall;
  std::vector<PositionBin> by_position;  // with the same bins as the sum over all documents
};

// The numbers from which lm-evaluation-harness computes the figures of loglikelihood_rolling: the end of a document is
// no target, and its words are the parts that re.split(r"\s+") makes, of which blanks at either end make one more.
struct HarnessCounts {
  int64_t words = 0;
  double nll = 0;  // nats
};

struct EvaluationResult {
  std::string split;
  std::optional<int64_t> stride;  // as in EvaluationOptions
  std::optional<int64_t> last;
  std::vector<DocumentResult> documents;
  int64_t tokens = 0;
  int64_t words = 0;
  int64_t bytes = 0;
  double nll = 0;  // total nats; exactly the sum over documents, and over positions
  // Mean over targets of the number of tokens of the document that the widest mechanism sees, the current one included.
  double context_mean = 0;
  bool as_trained = true;                // reading computes what training does
  std::vector<PositionBin> by_position;  // positions in the text, without inserted tokens; when requested
  bool has_bytes_by_position = false;    // tokens write the bytes of the text, and all tokens count
  std::vector<TargetLoss> targets;       // one entry per target, when requested
  // Only for a corpus with marks (quire prepare --task).
  std::optional<RecallResult> recall;
  // has_text: every target counts except first tokens that data.score_first_token leaves out, so that nats can be
  // divided by bytes. has_words: also no first token is left out, so that nats can be divided by words.
  bool has_text = true;
  bool has_words = true;
  // Only where all targets count, tokens write the bytes of the text, and words lie between white space of Unicode.
  std::optional<HarnessCounts> harness;
  double seconds = 0;
  bool complete = true;  // false when options.stop ended the evaluation early: the sums are then partial

  double loss() const { return nll / static_cast<double>(tokens); }  // nats per target
  double token_perplexity() const;
  double word_perplexity() const;  // over whitespace-separated words of the original text; NaN without has_words
  double bits_per_byte() const;    // over DocumentResult::bytes; NaN without has_text
};

// Returns the fields of configs/EVALUATION.md; window, cache and memory are those of the configuration.
nlohmann::ordered_json to_json(const EvaluationResult& result, const RunConfig& config, int64_t rows);
// Returns {"tokens", "nll", "perplexity", "accuracy", "chance"}.
nlohmann::ordered_json recall_to_json(const RecallResult& recall);
// Returns [{"begin", "end", "tokens", "nll", "nats_per_token", "bytes", "bits_per_byte"}, ...] for all documents or
// one.
nlohmann::ordered_json positions_to_json(const EvaluationResult& result, const std::vector<PositionBin>& bins);

}  // namespace quire
