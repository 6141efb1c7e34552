#include "core/json.h"

#include <set>
#include <vector>

namespace quire {

namespace {

// Returns whether JSON is nested too deep. The result does not matter for other text, which is refused anyway.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepestJson) return true;
  }
  return false;
}

template <class Json>
Json parse(std::string_view text, std::string* reason, const typename Json::parser_callback_t& callback) {
  if (is_too_deep(text)) {
    if (reason != nullptr) *reason = "it is nested more than " + std::to_string(kDeepestJson) + " deep";
    return Json(Json::value_t::discarded);
  }
  try {
    return Json::parse(text, callback);
  } catch (const typename Json::exception& error) {
    if (reason != nullptr) *reason = error.what();
    return Json(Json::value_t::discarded);
  }
}

}  // namespace

template <class Json>
Json parse_json(std::string_view text, std::string* reason) {
  return parse<Json>(text, reason, nullptr);
}

nlohmann::json parse_json_of_unique_keys(std::string_view text, std::string& reason) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects around
  std::string twice;
  nlohmann::json json = parse<nlohmann::json>(text, &reason, [&](int, Event event, nlohmann::json& value) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) twice = value.get<std::string>();
    return true;
  });
  if (twice.empty() || json.is_discarded()) return json;
  reason = "the key \"" + twice + "\" stands twice";
  return nlohmann::json(nlohmann::json::value_t::discarded);
}

template nlohmann::json parse_json(std::string_view text, std::string* reason);
template nlohmann::ordered_json parse_json(std::string_view text, std::string* reason);

}  // namespace quire
