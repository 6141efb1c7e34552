// An evaluation of a run as a JSON file, so that quire compare reads its figures instead of evaluating again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "trainers/evaluation/evaluation_result.h"

namespace quire {

// A bin of positions in a document; bins are powers of two.
struct StoredBin {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
  int64_t tokens = 0;
  int64_t bytes = 0;  // with StoredEvaluation::has_bytes_by_position
  double nll = 0;     // nats
  bool operator==(const StoredBin&) const = default;
};

struct StoredDocument {
  std::string name;
  int64_t tokens = 0;
  int64_t bytes = 0;
  int64_t words = 0;
  double nll = 0;  // nats
  std::vector<StoredBin> by_position;
  // Targets that repeat an earlier part of the document, where the corpus marks them, and those predicted right.
  std::optional<int64_t> recalled_tokens = {};
  int64_t recalled_right = 0;
  bool operator==(const StoredDocument&) const = default;
};

// The training that the evaluated weights have behind them.
struct TrainedSoFar {
  int64_t step = 0;
  std::optional<int64_t> tokens;  // targets trained on; nothing in runs that were kept without
  std::optional<double> seconds;  // of training steps; nothing where no metrics tell
  bool operator==(const TrainedSoFar&) const = default;
};

struct StoredEvaluation {
  TrainedSoFar trained;
  std::string corpus;     // checksum
  std::string tokenizer;  // "kind:checksum"
  std::string split;
  std::string weights;  // "trained" or "average"
  bool as_trained = true;
  bool has_text = true;   // nats can be divided by bytes
  bool has_words = true;  // and by words
  bool has_bytes_by_position = false;
  nlohmann::ordered_json settings;  // the other fields of quire eval --json
  std::vector<StoredDocument> documents;

  int64_t tokens() const;
  int64_t bytes() const;
  double nll() const;   // nats
  double loss() const;  // nats per target
  std::optional<double> bits_per_byte() const;
  // Says whether both have read the same targets: documents with the same names and numbers of tokens and bytes.
  bool reads_what(const StoredEvaluation& other) const;
};

// Returns "kind:checksum" of all that a tokenizer consists of.
std::string identity_of(const Tokenizer& tokenizer);

// `result` has bins of powers of two.
StoredEvaluation stored_evaluation(const EvaluationResult& result, const RunConfig& config, const Corpus& corpus,
                                   const std::string& weights, const TrainedSoFar& trained);

// Returns the text of the file (configs/COMPARE.md), a line.
std::string to_text(const StoredEvaluation& evaluation);
// Reads what to_text() wrote. Throws json::exception when it is not whole.
StoredEvaluation parse_stored_evaluation(const nlohmann::ordered_json& json);
// Throws Error(data) that names the file when it is not whole, or was not written by this version.
StoredEvaluation read_stored_evaluation(const std::filesystem::path& path);
// Returns whether the file begins as to_text() does.
bool is_stored_evaluation(const std::filesystem::path& path);

}  // namespace quire
