// A trace: which earlier tokens each layer and head has read for every token of a text, with which weight, as the
// layers report it (layers/pass/retrieval.h), and what the carried state is worth for the loss of each token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire {

// Positions are those of the text: BOS is 0, and tokens that a model inserts are not counted.

struct TraceSpan {
  int32_t begin, end;  // [begin, end); begin == end: a token that the model has inserted before the token `begin`
  float weight;        // the share of the head's result
};

// Holds what one head of a layer has read for one token. The weights of all its spans, `local` and `left_out` sum to 1.
struct TraceRead {
  int32_t token;   // index in Trace::tokens
  int32_t layer;   // index in Trace::layers
  int32_t head;    // -1: all heads read the same
  float local;     // the share of what was not retrieved, such as local attention
  float left_out;  // the share of the spans that are not among the strongest ones
  int32_t count;   // spans, strongest first:
  int64_t first;   // the first one in Trace::spans
};

struct TraceToken {
  int32_t id;
  std::string text;           // the characters that this token completes; BOS and EOS have none
  std::optional<double> nll;  // nats of this token, given those before it; nothing where it does not count
  // The same where its subsequence is read as the beginning of a document, without BOS: with empty carried state.
  // Nothing where an inserted token that predicts it falls away.
  std::optional<double> nll_without_state;
  int64_t first_read = 0;  // in Trace::reads
  int64_t reads = 0;
};

struct TraceLayer {
  std::string name;                  // its path, as in checkpoints
  int64_t heads = 0;                 // 0: all heads read the same
  int64_t queries = 0;               // tokens, times heads, that have retrieved something
  double local = 0;                  // mean over these
  double distance = 0;               // mean number of tokens from a span's last one to the reader, by weight
  double left_out = 0;               // the mean share that Trace::reads leave out
  std::vector<TraceSpan> strongest;  // with their shares of all that the layer has retrieved, largest first
};

struct Trace {
  int64_t length = 0;              // tokens of the whole text, BOS included
  int64_t subsequence = 0;         // model positions
  int64_t from = 0;                // position of the first of `tokens`
  bool as_trained = true;          // as in evaluations
  std::vector<int64_t> cuts;       // positions at which subsequences begin, of those in `tokens`
  std::vector<TraceLayer> layers;  // those that have retrieved something
  std::vector<TraceToken> tokens;
  std::vector<TraceRead> reads;  // by token, layer and head
  std::vector<TraceSpan> spans;
};

inline constexpr int64_t kMaxTracedTokens = 100'000;

}  // namespace quire
