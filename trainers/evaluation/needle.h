// Measures answers at chosen lengths: documents that end with a question (data/tasks/asked_document.h) are read from
// their beginning, and the answer is predicted token by token. Where the task has a published score, a reply is
// generated as well.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "core/ranks/ranks.h"
#include "data/tasks/filler.h"
#include "data/tasks/task_config.h"

namespace quire {

// Reads a text and predicts the next token: a model, or a test's replacement for one.
class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual void begin_document() = 0;  // BOS
  virtual void read(std::span<const int32_t> ids) = 0;
  virtual int32_t most_likely() = 0;
  // Keeps what was read so far, and returns to it.
  virtual void keep() = 0;
  virtual void go_back() = 0;
};

struct NeedleOptions {
  TaskConfig task;               // length and depth are replaced by those of each cell
  std::vector<int64_t> lengths;  // in positions, BOS included
  // The lengths that a user gave, from which these were rounded down; empty: these.
  std::vector<int64_t> requested_lengths = {};
  std::vector<double> depths;  // empty: one column, with needles anywhere
  int64_t samples = 5;         // documents per cell; they differ between depths only in the needle's place
  uint64_t seed = 1;
};

struct NeedleCell {
  int64_t length = 0;
  std::optional<double> depth;
  int64_t samples = 0;
  int64_t exact = 0;  // documents whose whole answer was predicted, greedily
  // documents whose published token was predicted: the first of a key, the last of a chain after the right others
  int64_t one_token = 0;
  // Tokens of all answers, and those of them that were predicted after the right ones before them.
  int64_t answer_tokens = 0;
  int64_t right_tokens = 0;
  std::vector<double> scores = {};  // the published score of each document's reply; empty where the task has none

  double exact_share() const { return static_cast<double>(exact) / static_cast<double>(samples); }
  double one_token_share() const { return static_cast<double>(one_token) / static_cast<double>(samples); }
  double right_share() const { return static_cast<double>(right_tokens) / static_cast<double>(answer_tokens); }
  double score() const;  // the mean
};

struct NeedleResult {
  std::vector<NeedleCell> cells;  // sorted by length, then by depth
  int64_t tokens = 0;             // number of tokens read
  double seconds = 0;
};

std::vector<std::string> split_at_commas(const std::string& text);
// Parses "1k,4k,1M,300": k is 1024, M is 1024 k. Throws Error(config), beginning with `where`, for anything else.
std::vector<int64_t> parse_lengths(const std::string& text, const std::string& where);
// Parses "0,0.25,1".
std::vector<double> parse_depths(const std::string& text, const std::string& where);
std::string format_length(int64_t length);

// Throws Error(config) when a length is too short for the task, or the tokenizer cannot write it.
void require_lengths(const NeedleOptions& options, const Tokenizer& tokenizer, const Filler& filler);

// Throws Error(config), before anything is read, when a length is too short for the task or the tokenizer cannot write
// the key. Memory does not grow with the length. Ranks divide the documents; each returns the result of all, equal to
// that of one rank. progress(tokens read by all ranks, of all) may be empty; all ranks call it at the same moments.
NeedleResult find_needles(Predictor& predictor, const Tokenizer& tokenizer, const Filler& filler,
                          const NeedleOptions& options, const std::function<void(int64_t, int64_t)>& progress,
                          Ranks& ranks);

// Returns the interval of 95 % of a mean of values from 0 to 1 (Wilson 1927). For values other than 0 and 1 it is too
// wide.
struct ShareInterval {
  double low = 0;
  double high = 1;
};
ShareInterval interval_of(double mean, int64_t samples);

// Returns [{"length", "depth", "samples", "exact_match", "exact_match_interval", "one_token", "one_token_interval"},
// ...] or, of a task with a score, [{"task", "length", "samples", "score", "score_interval", "exact_match",
// "exact_match_interval", "token_accuracy", "scores"}, ...].
nlohmann::ordered_json cells_to_json(const NeedleResult& result, const std::string& task);

}  // namespace quire
