#include "trainers/serve/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/json.h"

namespace quire {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& message) {
  throw ServeError(400, message);
}

int64_t integer(const Json& value, const char* name, int64_t min, int64_t max) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    refuse(fmt::format("{} must be a whole number from {} to {}", name, min, max));
  }
  return value.get<int64_t>();
}

double number(const Json& value, const char* name, double min, double max) {
  if (!value.is_number() || !(value.get<double>() >= min && value.get<double>() <= max)) {
    refuse(fmt::format("{} must be a number from {} to {}", name, min, max));
  }
  return value.get<double>();
}

bool boolean(const Json& value, const char* name) {
  if (!value.is_boolean()) refuse(fmt::format("{} must be true or false", name));
  return value.get<bool>();
}

std::vector<std::string> parse_stops(const Json& value) {
  constexpr size_t kMaxStops = 16;
  constexpr size_t kMaxBytes = 256;
  std::vector<std::string> stops;
  if (value.is_string()) {
    stops.push_back(value.get<std::string>());
  } else if (value.is_array()) {
    for (const Json& one : value) {
      if (stops.size() == kMaxStops || !one.is_string()) refuse("stop must be a text or a list of up to 16 texts");
      stops.push_back(one.get<std::string>());
    }
  } else {
    refuse("stop must be a text or a list of up to 16 texts");
  }
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > kMaxBytes) refuse("each text of stop must have 1 to 256 bytes");
  }
  return stops;
}

// Several prompts are a list of texts or a list of lists.
bool is_several(const Json& value) {
  return value.is_array() && !value.empty() && (value.front().is_string() || value.front().is_array());
}

std::vector<Prompt> parse_prompts(const Json& value, const TokenTexts& texts, const RequestLimits& limits,
                                  bool follows) {
  std::vector<Prompt> prompts;
  if (!is_several(value)) {
    prompts.push_back(parse_prompt(value, texts, follows));
    return prompts;
  }
  if (value.size() > static_cast<size_t>(limits.choices)) {
    refuse(fmt::format("prompt: at most {} prompts fit one request; send several", limits.choices));
  }
  for (const Json& one : value) {
    if (one.type() != value.front().type()) refuse("prompt: all prompts must be texts, or all lists of token ids");
    prompts.push_back(parse_prompt(one, texts, follows));
  }
  return prompts;
}

// Fields of OpenAI's interface that change nothing at these values. Other values are refused.
bool is_neutral(const std::string& key, const Json& value, const CompletionRequest& request) {
  if (value.is_null() || key == "user") return true;
  if (key == "frequency_penalty" || key == "presence_penalty") return value.is_number() && value.get<double>() == 0;
  if (key == "logit_bias") return value.is_object() && value.empty();
  if (key == "suffix") return value.is_string() && value.get_ref<const std::string&>().empty();
  return key == "best_of" && value.is_number_integer() && value.get<int64_t>() == request.n;
}

void require_neutral(const Json& json, const CompletionRequest& request) {
  constexpr std::array kRead{"model", "prompt",   "max_tokens", "temperature", "top_p", "top_k",   "seed",
                             "n",     "logprobs", "echo",       "stream",      "stop",  "session", "stream_options"};
  constexpr std::array kNeutral{"user", "frequency_penalty", "presence_penalty", "logit_bias", "suffix", "best_of"};
  for (const auto& [key, value] : json.items()) {
    if (std::find(kRead.begin(), kRead.end(), key) != kRead.end()) continue;
    if (std::find(kNeutral.begin(), kNeutral.end(), key) == kNeutral.end()) {
      refuse(fmt::format("{} is no field of this request; leave it out", json_text(shortened(key))));
    }
    if (!is_neutral(key, value, request)) refuse(fmt::format("{} is not supported; leave it out", key));
  }
}

void parse_sampling(const Json& json, const RequestLimits& limits, SamplingOptions& sampling) {
  const auto given = [&](const char* name) -> const Json* {
    const auto found = json.find(name);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  };
  if (const Json* value = given("max_tokens")) sampling.length = integer(*value, "max_tokens", 0, limits.max_tokens);
  if (const Json* value = given("temperature")) sampling.temperature = number(*value, "temperature", 0, 100);
  if (const Json* value = given("top_p")) sampling.top_p = number(*value, "top_p", 0.000001, 1);
  if (const Json* value = given("top_k")) sampling.top_k = integer(*value, "top_k", 0, INT32_MAX);
  const Json* seed = given("seed");
  // Without a seed every request has another one.
  sampling.seed = seed != nullptr ? static_cast<uint64_t>(integer(*seed, "seed", INT64_MIN, INT64_MAX))
                                  : (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
}

void check_size(const CompletionRequest& request, const RequestLimits& limits) {
  if (static_cast<int64_t>(request.prompts.size()) * request.n > limits.choices) {
    refuse(fmt::format("prompts times n are more than {}; send several requests", limits.choices));
  }
  if (request.n > 1 && request.sampling.length == 0)
    refuse("n: with max_tokens 0 there is one choice only; leave n out");
  int64_t tokens = static_cast<int64_t>(request.prompts.size()) * request.n * request.sampling.length;
  for (const Prompt& prompt : request.prompts) {
    const auto read = static_cast<int64_t>(prompt.ids->size());
    if (request.echo) tokens += read * request.n;
    if (limits.room && read + std::max<int64_t>(request.sampling.length - 1, 0) > *limits.room) {
      refuse(fmt::format("the prompt has {} tokens and max_tokens is {}, but this model has {} positions; send less",
                         read, request.sampling.length, *limits.room));
    }
  }
  if (request.logprobs && tokens * (1 + *request.logprobs) > limits.scores) {
    refuse(
        fmt::format("logprobs {} of {} tokens are more than {} numbers; send several requests, or a smaller "
                    "max_tokens",
                    *request.logprobs, tokens, limits.scores));
  }
}

}  // namespace

Json parse_body(std::string_view body) {
  std::string reason = "it holds a NUL";
  Json json = body.find('\0') == std::string_view::npos ? parse_json_of_unique_keys(body, reason)
                                                        : Json(Json::value_t::discarded);
  if (json.is_discarded()) refuse("the body is not JSON, or holds a key twice: " + shortened(reason));
  if (!json.is_object()) refuse("the body must be a JSON object");
  return json;
}

void require_fields(const Json& json, std::initializer_list<std::string_view> names) {
  for (const auto& [key, value] : json.items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    refuse(fmt::format("{} is no field of this request; leave it out", json_text(shortened(key))));
  }
}

void require_model(const Json& json, const std::string& model) {
  const auto found = json.find("model");
  if (found == json.end() || found->is_null() || *found == model) return;
  if (!found->is_string()) refuse("model must be a text");
  throw ServeError(404, fmt::format("there is no model {}; this server has {}",
                                    json_text(shortened(found->get_ref<const std::string&>())), model));
}

std::vector<int32_t> parse_ids(const Json& list, const char* name, int64_t vocabulary) {
  if (!list.is_array()) refuse(fmt::format("{} must be a list of token ids", name));
  std::vector<int32_t> ids;
  ids.reserve(list.size() + 1);
  for (const Json& id : list) {
    if (!id.is_number()) refuse(fmt::format("{} must hold whole numbers, the ids of tokens", name));
    const bool fits = id.is_number_integer() && id >= 0 && id < vocabulary;
    if (!fits) {
      refuse(fmt::format("{}: {} is no token id; ids are whole numbers from 0 to {}", name, id.dump(), vocabulary - 1));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Prompt parse_prompt(const Json& value, const TokenTexts& texts, bool follows) {
  std::vector<int32_t> ids;
  if (value.is_string()) {
    ids = texts.encode(value.get_ref<const std::string&>(), follows);
  } else if (value.is_array()) {
    ids = parse_ids(value, "prompt", texts.tokenizer().vocabulary_size());
  } else {
    refuse("prompt must be a text, texts, token ids, or lists of token ids");
  }
  const int32_t bos = texts.tokenizer().bos_id();
  const bool adds = !follows && (ids.empty() || ids.front() != bos);
  if (adds) ids.insert(ids.begin(), bos);
  return {std::make_shared<const std::vector<int32_t>>(std::move(ids)), adds ? 1 : 0};
}

std::string parse_session_name(const Json& value) {
  constexpr const char* kRule =
      "session must be a name of 1 to 64 letters, digits, '-', '_' and '.', not beginning with '.'";
  if (!value.is_string()) refuse(kRule);
  const auto& name = value.get_ref<const std::string&>();
  const bool good = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
  if (!good || name.empty() || name.size() > 64 || name.front() == '.') refuse(kRule);
  return name;
}

CompletionRequest parse_completion(std::string_view body, const TokenTexts& texts, const RequestLimits& limits) {
  const Json json = parse_body(body);
  CompletionRequest request;
  const auto given = [&](const char* name) -> const Json* {
    const auto found = json.find(name);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  };
  if (const Json* value = given("n")) request.n = integer(*value, "n", 1, limits.choices);
  require_neutral(json, request);
  require_model(json, limits.model);
  if (const Json* value = given("session")) request.session = parse_session_name(*value);
  if (const Json* value = given("logprobs")) request.logprobs = integer(*value, "logprobs", 0, 20);
  if (const Json* value = given("echo")) request.echo = boolean(*value, "echo");
  if (const Json* value = given("stream")) request.stream = boolean(*value, "stream");
  if (const Json* value = given("stop")) request.stops = parse_stops(*value);
  if (const Json* value = given("stream_options")) {
    if (!value->is_object() || value->size() > 1 || (value->size() == 1 && !value->contains("include_usage"))) {
      refuse("stream_options may hold include_usage alone");
    }
    if (!request.stream) refuse("stream_options needs stream: true");
    if (!value->empty()) request.include_usage = boolean(value->at("include_usage"), "include_usage");
  }
  parse_sampling(json, limits, request.sampling);
  const Json* prompt = given("prompt");
  if (prompt == nullptr) refuse("prompt is missing; give a text or token ids");
  request.prompts = parse_prompts(*prompt, texts, limits, !request.session.empty());
  check_size(request, limits);
  return request;
}

}  // namespace quire
