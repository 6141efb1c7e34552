#include "trainers/run/metrics.h"

#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "core/files/file_io.h"

namespace quire {

namespace {

std::string to_line(const nlohmann::ordered_json& object) {
  // nlohmann writes non-finite numbers as null.
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void remove_torn_line(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = read_text_file(path);
  if (text.empty() || text.back() == '\n') return;
  const size_t end = text.rfind('\n');
  replace_file_atomically(path, std::string_view(text).substr(0, end == std::string::npos ? 0 : end + 1));
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path) : path_(path) {
  remove_torn_line(path);
  file_.reset(std::fopen(path.c_str(), "ab"));
  if (!file_) fail(ErrorKind::disk, "{}: cannot be opened for appending: {}", path.string(), std::strerror(errno));
}

void MetricsLog::append(const nlohmann::ordered_json& object) {
  const std::string line = to_line(object);
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!written || std::fflush(file_.get()) != 0) {
    fail(ErrorKind::disk, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
}

std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& path) {
  std::vector<nlohmann::ordered_json> objects;
  if (!std::filesystem::exists(path)) return objects;
  const std::string text = read_text_file(path);
  int64_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    auto object = nlohmann::ordered_json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                                text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!object.is_object()) {
      fail(ErrorKind::data, "{}:{}: not a JSON object; remove this line", path.string(), number);
    }
    objects.push_back(std::move(object));
    begin = end + 1;
  }
  return objects;
}

void truncate_metrics_after(const std::filesystem::path& path, int64_t step) {
  if (!std::filesystem::exists(path)) return;
  std::string kept;
  for (const auto& object : read_metrics(path)) {
    const auto found = object.find("step");
    if (found != object.end() && found->is_number_integer() && found->get<int64_t>() > step) continue;
    kept += to_line(object);
  }
  replace_file_atomically(path, kept);
}

}  // namespace quire
