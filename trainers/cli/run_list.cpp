#include "trainers/cli/run_list.h"

#include <filesystem>

#include "core/check.h"
#include "core/files/output_file.h"
#include "trainers/compare/compared_run.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

bool is_same_folder(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return fs::equivalent(one, other, ignored);
}

}  // namespace

void require_different_runs(const std::vector<std::string>& runs) {
  for (size_t i = 0; i < runs.size(); ++i) {
    compared_config(runs[i]);
    for (size_t j = 0; j < i; ++j) {
      if (is_same_folder(runs[i], runs[j])) fail(ErrorKind::config, "{}: is given twice", runs[i]);
    }
  }
}

size_t number_of_baseline(const std::vector<std::string>& runs, const std::string& baseline) {
  if (baseline.empty()) return 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (is_same_folder(runs[i], baseline)) return i;
  }
  fail(ErrorKind::config, "--baseline {}: is none of the runs; give it as a RUN, too", baseline);
}

void require_page(const std::string& file, std::string_view option, std::string_view mark, std::string_view what) {
  require_output_folder(file, option);
  is_replaceable(file, what, [&](const fs::path& path) { return first_bytes(path, mark.size()) == mark; });
}

}  // namespace quire
