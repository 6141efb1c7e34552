// Reads a text and traces what its tokens retrieve.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "trainers/setup/model.h"
#include "trainers/trace/trace.h"

namespace quire {

struct TraceOptions {
  int64_t from = 0;              // the first token to trace
  std::optional<int64_t> count;  // tokens to trace; nothing: to the end
  int64_t top_k = 8;             // the spans of a token and head that are listed; the others are `left_out`
  std::function<void(int64_t tokens, int64_t total)> progress;  // may be empty
};

// The text to read.
struct TraceText {
  std::string name;          // for messages
  std::vector<int32_t> ids;  // without BOS
  bool ends = false;         // EOS follows, and its loss counts: a whole document
};

// `config` comes from evaluation_config(); the model reads as an evaluation does. Throws Error(config) for a model that
// retrieves nothing, for tokens that the text does not have and for more than kMaxTracedTokens.
Trace trace_text(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine,
                 const TraceText& text, const TraceOptions& options);

}  // namespace quire
