#include "trainers/run/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

// Returns the step of a line; 0 for a line without one.
int64_t step_of(const nlohmann::ordered_json& object) {
  const auto found = object.find("step");
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::string to_line(const nlohmann::ordered_json& object) {
  // nlohmann writes non-finite numbers as null.
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// The largest line that is read. A metrics line is some kilobytes long, telemetry of many layers included.
constexpr size_t kLongestLine = size_t{16} << 20;

[[noreturn]] void fail_long_line(const fs::path& path, int64_t number) {
  fail(ErrorKind::data, "{}:{}: a line of more than {} bytes; these are no metrics, remove the file", path.string(),
       number, kLongestLine);
}

// Calls use(line, number) for every complete line; returns the offset after the last of them.
template <typename Use>
int64_t for_each_line(const fs::path& path, const Use& use) {
  File file = File::open(path, ErrorKind::data);
  std::vector<char> buffer(size_t{1} << 20);
  std::string line;
  int64_t number = 1;
  int64_t end_of_lines = 0;
  while (const size_t count = file.read(std::as_writable_bytes(std::span(buffer)))) {
    std::string_view rest(buffer.data(), count);
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      std::string_view whole = rest.substr(0, end);
      if (!line.empty()) whole = line += whole;
      rest.remove_prefix(end + 1);
      use(whole, number++);
      end_of_lines += static_cast<int64_t>(whole.size()) + 1;
      line.clear();
    }
    line += rest;
    if (line.size() > kLongestLine) fail_long_line(path, number);
  }
  return end_of_lines;
}

void for_each_object(const fs::path& path, const std::function<void(nlohmann::ordered_json&&)>& use) {
  visit_metrics_lines(path,
                      [&](std::string_view line, int64_t number) { use(parse_metrics_line(path, line, number)); });
}

void remove_torn_line(const fs::path& path) {
  if (!fs::exists(path)) return;
  const int64_t end = for_each_line(path, [](std::string_view, int64_t) {});
  std::error_code error;
  do {
    fs::resize_file(path, static_cast<uintmax_t>(end), error);
  } while (error == std::errc::interrupted);
  if (error) fail(ErrorKind::disk, "{}: cannot be written: {}", path.string(), error.message());
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& path) : path_(path) {
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

void visit_metrics_lines(const fs::path& path, const std::function<void(std::string_view, int64_t)>& use) {
  if (!fs::exists(path)) return;
  for_each_line(path, use);
}

nlohmann::ordered_json parse_metrics_line(const fs::path& path, std::string_view line, int64_t number) {
  auto object = parse_json<nlohmann::ordered_json>(line);
  if (object.is_object()) return object;
  fail(ErrorKind::data, "{}:{}: not a JSON object; remove this line", path.string(), number);
}

std::vector<nlohmann::ordered_json> read_metrics(const fs::path& path) {
  std::vector<nlohmann::ordered_json> objects;
  for_each_object(path, [&](nlohmann::ordered_json&& object) { objects.push_back(std::move(object)); });
  return objects;
}

int64_t last_logged_step(const fs::path& path, int64_t last_step) {
  int64_t last = 0;
  for_each_object(path, [&](const nlohmann::ordered_json& object) {
    const int64_t step = step_of(object);
    if (step <= last_step) last = std::max(last, step);
  });
  return last;
}

void truncate_metrics_after(const fs::path& path, int64_t step) {
  if (!fs::exists(path)) return;
  std::string kept;
  for_each_object(path, [&](const nlohmann::ordered_json& object) {
    if (step_of(object) <= step) kept += to_line(object);
  });
  replace_file_atomically(path, kept);
}

}  // namespace quire
