// The body of POST /v1/completions, checked.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainers/evaluation/sampling.h"
#include "trainers/serve/serve_error.h"
#include "trainers/serve/token_texts.h"

namespace quire {

// Limits of one request.
struct RequestLimits {
  int64_t choices = 256;                  // prompts times n
  int64_t max_tokens = int64_t{1} << 20;  // to generate
  int64_t scores = int64_t{1} << 21;      // log probabilities in the answer
  std::optional<int64_t> room;            // tokens of a document, BOS included; none: any number
  std::string model;                      // the name of the model
};

struct Prompt {
  std::shared_ptr<const std::vector<int32_t>> ids;  // with BOS, unless it continues a session
  int64_t hidden = 0;                               // tokens at its beginning that the client did not send
};

struct CompletionRequest {
  std::vector<Prompt> prompts;
  SamplingOptions sampling{.length = 16};
  int64_t n = 1;
  std::optional<int64_t> logprobs;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  std::vector<std::string> stops;
  std::string session;  // empty: none
};

// Parses the text as a JSON object without keys that stand twice. Throws ServeError(400), as the functions below do.
nlohmann::json parse_body(std::string_view body);
void require_fields(const nlohmann::json& json, std::initializer_list<std::string_view> names);
// Throws ServeError(404) for the name of another model.
void require_model(const nlohmann::json& json, const std::string& model);
// Returns the token ids of a list; errors call it `name`.
std::vector<int32_t> parse_ids(const nlohmann::json& list, const char* name, int64_t vocabulary);
// Parses and checks the body of a request. Throws for a field that is unknown, of a wrong type or out of range.
CompletionRequest parse_completion(std::string_view body, const TokenTexts& texts, const RequestLimits& limits);
// Returns a text or a list of ids as the beginning of a document or, with `follows`, as its continuation.
Prompt parse_prompt(const nlohmann::json& value, const TokenTexts& texts, bool follows);
// Returns a name of a session: 1 to 64 letters, digits, "-", "_" and "."; no "." first.
std::string parse_session_name(const nlohmann::json& value);

}  // namespace quire
