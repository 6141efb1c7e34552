// Measures retrieval at chosen lengths: needle documents (data/tasks/needle_task.h) are read from their beginning, and
// the answer is predicted token by token.
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
};

struct NeedleOptions {
  TaskConfig task;               // length and depth are replaced by those of each cell
  std::vector<int64_t> lengths;  // in positions, BOS included
  std::vector<double> depths;    // empty: one column, with needles anywhere
  int64_t samples = 5;           // documents per cell; they differ between depths only in the needle's place
  uint64_t seed = 1;
};

struct NeedleCell {
  int64_t length = 0;
  std::optional<double> depth;
  int64_t samples = 0;
  int64_t exact = 0;  // documents whose whole answer was predicted, greedily
  // documents whose published token was predicted: the first of a key, the last of a chain after the right others
  int64_t one_token = 0;
};

struct NeedleResult {
  std::vector<NeedleCell> cells;  // sorted by length, then by depth
  int64_t tokens = 0;             // number of tokens read
  double seconds = 0;
};

// Parses "1k,4k,1M,300": k is 1024, M is 1024 k. Throws Error(config), beginning with `where`, for anything else.
std::vector<int64_t> parse_lengths(const std::string& text, const std::string& where);
// Parses "0,0.25,1".
std::vector<double> parse_depths(const std::string& text, const std::string& where);
std::string format_length(int64_t length);

// Throws Error(config), before anything is read, when a length is too short for the task or the tokenizer cannot write
// the key. Memory does not grow with the length. Ranks divide the documents; each returns the result of all, equal to
// that of one rank. progress(tokens read by all ranks, of all) may be empty; all ranks call it at the same moments.
NeedleResult find_needles(Predictor& predictor, const Tokenizer& tokenizer, const Filler& filler,
                          const NeedleOptions& options, const std::function<void(int64_t, int64_t)>& progress,
                          Ranks& ranks);

// Returns [{"length", "depth", "samples", "exact_match", "one_token"}, ...].
nlohmann::ordered_json cells_to_json(const NeedleResult& result);

}  // namespace quire
