#include "trainers/run/run_evaluations.h"

#include <unistd.h>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "core/log.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEvaluations = "evaluations";

// A split may have any name; a file may not.
std::string split_in_file_name(const std::string& split) {
  std::string name;
  for (const char c : split) {
    const bool as_it_is =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    name += as_it_is ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return name;
}

bool replaces(const std::optional<StoredEvaluation>& best, const StoredEvaluation& evaluation, ReplaceBest replace) {
  switch (replace) {
    case ReplaceBest::always:
      return true;
    case ReplaceBest::never:
      return false;
    case ReplaceBest::when_lower:
    case ReplaceBest::when_same_and_lower:
      break;
  }
  if (!best) return true;
  if (!best->reads_what(evaluation)) return replace == ReplaceBest::when_lower;
  return evaluation.loss() < best->loss();
}

// Writes PATH under another name first. The name has the number of the process, because quire eval and a training run
// may store an evaluation at the same moment.
void replace_evaluation(const fs::path& path, const std::string& text) {
  is_replaceable(path, "an evaluation of quire", is_stored_evaluation);
  const fs::path partial = with_suffix(path, fmt::format(".{}.partial", ::getpid()));
  try {
    write_file_durably(partial, text);
    rename_durably(partial, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw;
  }
}

}  // namespace

fs::path evaluation_file(const fs::path& run_directory, const std::string& split, WhichEvaluation which) {
  const char* const end = which == WhichEvaluation::best ? ".best.json" : ".latest.json";
  return run_directory / kEvaluations / (split_in_file_name(split) + end);
}

std::optional<StoredEvaluation> read_run_evaluation(const fs::path& run_directory, const std::string& split,
                                                    WhichEvaluation which) {
  const fs::path path = evaluation_file(run_directory, split, which);
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found) return std::nullopt;
  return read_stored_evaluation(path);
}

void store_run_evaluation(const fs::path& run_directory, const StoredEvaluation& evaluation, ReplaceBest replace) {
  std::error_code error;
  fs::create_directories(run_directory / kEvaluations, error);
  if (error) fail(ErrorKind::disk, "{}: cannot be made: {}", (run_directory / kEvaluations).string(), error.message());
  const std::string text = to_text(evaluation);
  const auto latest = read_run_evaluation(run_directory, evaluation.split, WhichEvaluation::latest);
  if (!latest || latest->trained.step <= evaluation.trained.step) {
    replace_evaluation(evaluation_file(run_directory, evaluation.split, WhichEvaluation::latest), text);
  }
  const auto best = read_run_evaluation(run_directory, evaluation.split, WhichEvaluation::best);
  if (!replaces(best, evaluation, replace)) return;
  replace_evaluation(evaluation_file(run_directory, evaluation.split, WhichEvaluation::best), text);
}

void try_to_store_run_evaluation(const fs::path& run_directory, const StoredEvaluation& evaluation,
                                 ReplaceBest replace) {
  try {
    store_run_evaluation(run_directory, evaluation, replace);
  } catch (const Error& error) {
    log_warn(fmt::format("the evaluation is not stored for quire compare: {}", error.what()));
  }
}

void remove_run_evaluations_after(const fs::path& run_directory, int64_t step) {
  std::error_code error;
  if (!fs::is_directory(run_directory / kEvaluations, error)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_directory / kEvaluations, error)) {
    if (!is_stored_evaluation(entry.path())) continue;
    try {
      if (read_stored_evaluation(entry.path()).trained.step <= step) continue;
    } catch (const Error&) {  // damaged: of no use to anyone
    }
    std::error_code ignored;
    fs::remove(entry.path(), ignored);
  }
}

std::optional<fs::path> run_of_checkpoint(const fs::path& checkpoint) {
  std::error_code ignored;
  const fs::path path = fs::absolute(checkpoint.has_filename() ? checkpoint : checkpoint.parent_path(), ignored);
  const fs::path run = path.parent_path().parent_path();
  if (path.parent_path().filename() != "checkpoints" || !fs::is_regular_file(run / "config.yaml", ignored)) {
    return std::nullopt;
  }
  return run;
}

}  // namespace quire
