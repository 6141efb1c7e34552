// metrics.jsonl: one JSON object per logged step or evaluation, with the fields of configs/OUTPUT.md.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace quire {

// Appends lines, each flushed at once. An incomplete last line that a crash left is removed first.
class MetricsLog {
 public:
  explicit MetricsLog(const std::filesystem::path& path);
  // Non-finite numbers become null. Throws Error(disk) when the line cannot be written.
  void append(const nlohmann::ordered_json& object);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// Calls use(line, number) for every whole line, numbered from 1; a file that does not exist has none. Throws
// Error(data) when the path is no regular file, and for a line of more than 16 MiB.
void visit_metrics_lines(const std::filesystem::path& path, const std::function<void(std::string_view, int64_t)>& use);
// Parses a line. Throws Error(data) that names file and line when it is no JSON object.
nlohmann::ordered_json parse_metrics_line(const std::filesystem::path& path, std::string_view line, int64_t number);

// Returns all whole lines; a file that does not exist has none. An incomplete last line is dropped. Throws Error(data)
// for other damage, and when the path is no regular file.
std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& path);

// Returns the largest step that a line has, at most `last_step`; 0 when there is none.
int64_t last_logged_step(const std::filesystem::path& path, int64_t last_step);

// Removes the lines of steps after `step`, before a run continues from there. The file is replaced as a whole.
void truncate_metrics_after(const std::filesystem::path& path, int64_t step);

}  // namespace quire
