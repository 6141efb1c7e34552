// A document that the engine reads and continues for a request: the request for one continuation, and its result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainers/evaluation/sampling.h"
#include "trainers/serve/generated_text.h"
#include "trainers/serve/row_reader.h"

namespace quire {

// A document that was read up to a cut, to which any number of requests can go back.
struct Session {
  RowState state;  // after `position` model positions, a multiple of the subsequence; empty at 0
  int64_t position = 0;
  std::vector<int32_t> tail;  // tokens behind the cut, which are read again with what follows
  int64_t tokens = 0;         // of the document, BOS and the tail included
  int64_t bytes() const { return static_cast<int64_t>(state.bytes.size() + tail.size() * sizeof(int32_t)) + 4096; }
};

// Log probabilities of consecutive tokens, and of the most likely ones at their places.
struct TokenScores {
  std::vector<int32_t> ids;
  std::vector<double> log_probabilities;  // in nats
  // top_count entries of each token: the most likely ones, the first one first.
  std::vector<std::pair<int32_t, double>> top;
  size_t top_count = 0;
};

// The state and the logits at the end of a text, from which its other continuations begin.
struct ReadText {
  RowState state;
  int64_t position = 0;
  std::vector<float> logits;  // over all rows of model.vocabulary
};

enum class Finish { none, stop, length };

struct Choice {
  // The request.
  std::shared_ptr<const Session> session;            // nullptr: the text begins a document
  std::shared_ptr<const std::vector<int32_t>> text;  // behind the session's tokens; else with BOS
  SamplingOptions sampling;
  std::vector<std::string> stops;
  std::optional<int64_t> top;  // with a value: scores are asked for, with this many most likely tokens
  int64_t first_scored = std::numeric_limits<int64_t>::max();  // token of the text from which on targets are scored
  bool keep = false;                                           // makes a session instead of a continuation
  std::shared_ptr<const ReadText> start;                       // where a sibling begins; the engine sets it
  // Further continuations of the same text, which begin with the state at its end.
  std::vector<std::shared_ptr<Choice>> siblings;

  // Called by the engine's thread: after each token when `stream`, and when the choice has ended.
  bool stream = false;
  std::function<void(Choice&)> on_token;
  std::function<void(Choice&)> on_end;
  std::atomic<bool> cancelled{false};  // nobody waits for it any more

  // The result.
  TokenScores text_scores;  // of the targets from first_scored on
  TokenScores scores;       // of what was generated, an EOS included
  GeneratedText generated{{}};
  Finish finish = Finish::none;
  std::shared_ptr<const Session> kept;
  std::string error;  // empty: none
  int status = 500;   // of the error
  int64_t tokens_read = 0;
  int64_t tokens_generated = 0;

  int64_t text_tokens() const { return text ? static_cast<int64_t>(text->size()) : 0; }
};

}  // namespace quire
