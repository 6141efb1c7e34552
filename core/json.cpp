#include "core/json.h"

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

}  // namespace

template <class Json>
Json parse_json(std::string_view text, std::string* reason) {
  if (is_too_deep(text)) {
    if (reason != nullptr) *reason = "it is nested more than " + std::to_string(kDeepestJson) + " deep";
    return Json(Json::value_t::discarded);
  }
  try {
    return Json::parse(text);
  } catch (const typename Json::exception& error) {
    if (reason != nullptr) *reason = error.what();
    return Json(Json::value_t::discarded);
  }
}

template nlohmann::json parse_json(std::string_view text, std::string* reason);
template nlohmann::ordered_json parse_json(std::string_view text, std::string* reason);

}  // namespace quire
