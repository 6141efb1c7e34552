#include "trainers/exchange/strict_json.h"

#include <set>
#include <vector>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"

namespace quire {

namespace {

using Json = nlohmann::json;

// Refuses depth and double keys while the text is read.
class Strict {
 public:
  explicit Strict(const std::string& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepestJson) fail(ErrorKind::data, "{}: is nested more than {} deep", file_, kDeepestJson);
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
          fail(ErrorKind::data, "{}: the key {} occurs twice", file_, parsed.get_ref<const std::string&>());
        }
        break;
      default:
        break;
    }
    return true;
  }

 private:
  const std::string& file_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json read_strict_json(const std::filesystem::path& file, int64_t max_bytes) {
  const std::string name = file.string();
  const std::string text = read_text_file(file, {.kind = ErrorKind::data, .max_bytes = max_bytes});
  // The parser would stop at a NUL.
  if (text.find('\0') != std::string::npos) fail(ErrorKind::data, "{}: holds a NUL character", name);
  Strict strict(name);
  try {
    return Json::parse(
        text, [&strict](int depth, Json::parse_event_t event, Json& parsed) { return strict(depth, event, parsed); });
  } catch (const Json::exception& error) {
    fail(ErrorKind::data, "{}: is not JSON: {}", name, shortened(error.what()));
  }
}

}  // namespace quire
