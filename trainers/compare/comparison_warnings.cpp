// Says what makes the figures of runs incomparable, or less so.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "trainers/compare/comparison.h"

namespace quire {

namespace {

// Returns the paths of runs, at most three of them.
std::string listed(const std::vector<std::string>& paths) {
  constexpr size_t kShown = 3;
  const std::vector<std::string> shown(paths.begin(),
                                       paths.begin() + static_cast<int64_t>(std::min(paths.size(), kShown)));
  const std::string more = paths.size() > kShown ? fmt::format(" and {} more", paths.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), more);
}

template <typename Is>
std::vector<std::string> paths_where(const Comparison& comparison, const Is& is) {
  std::vector<std::string> paths;
  for (const ComparedRun& run : comparison.runs) {
    if (is(run)) paths.push_back(run.path);
  }
  return paths;
}

// Returns the runs whose value is not that of the baseline's first run.
template <typename Of>
std::vector<std::string> others(const Comparison& comparison, const Of& of) {
  const ComparedRun& first = comparison.runs[comparison.groups[comparison.baseline].runs.front()];
  return paths_where(comparison, [&](const ComparedRun& run) { return of(run) != of(first); });
}

// Documents that end within a subsequence make a difference of less than a percent, with each seed another.
void warn_of_tokens_read(const Comparison& comparison, std::vector<std::string>& warnings) {
  constexpr double kNearlyEqual = 1.01;
  const auto [low, high] =
      std::minmax_element(comparison.runs.begin(), comparison.runs.end(), [](const auto& one, const auto& other) {
        return one.evaluation.trained.tokens < other.evaluation.trained.tokens;
      });
  if (!low->evaluation.trained.tokens) return;
  const int64_t fewer = *low->evaluation.trained.tokens;
  const int64_t more = *high->evaluation.trained.tokens;
  if (static_cast<double>(more) <= kNearlyEqual * static_cast<double>(fewer)) return;
  warnings.push_back(fmt::format("the numbers of tokens trained on differ: from {} ({}) to {} ({})", fewer, low->path,
                                 more, high->path));
}

void warn_of_unequal_data(const Comparison& comparison, std::vector<std::string>& warnings) {
  const std::string& first = comparison.runs[comparison.groups[comparison.baseline].runs.front()].path;
  const auto add = [&](const std::vector<std::string>& paths, const std::string& what) {
    if (!paths.empty()) warnings.push_back(fmt::format("{}: {} and {}", what, first, listed(paths)));
  };
  add(others(comparison, [](const ComparedRun& run) { return run.evaluation.corpus; }),
      "the corpora differ, and figures count only where their text is the same");
  add(others(comparison, [](const ComparedRun& run) { return run.evaluation.tokenizer; }),
      "the tokenizers differ, so that losses and perplexities of tokens do not compare, nor do positions");
  add(others(comparison,
             [](const ComparedRun& run) { return std::pair(run.evaluation.documents.size(), run.evaluation.bytes()); }),
      "the evaluations have read different documents");
  warn_of_tokens_read(comparison, warnings);
  add(others(comparison, [](const ComparedRun& run) { return run.evaluation.weights; }),
      "some figures are those of an average of the weights, others are not");
  add(others(comparison,
             [](const ComparedRun& run) {
               return run.curve.empty() ? std::set<int64_t>() : std::set<int64_t>{run.curve.back().evaluated};
             }),
      "the evaluations while training have read different numbers of targets");
}

void warn_of_seeds(const Comparison& comparison, std::vector<std::string>& warnings) {
  const auto named = [](const RunGroup& group) { return group.letter + " " + group.name; };
  for (const RunGroup& group : comparison.groups) {
    const std::vector<int64_t> seeds = seeds_of(group, comparison.runs);
    if (std::set<int64_t>(seeds.begin(), seeds.end()).size() == seeds.size()) continue;
    warnings.push_back(fmt::format("{}: some runs have the same configuration and seed", named(group)));
  }
  const RunGroup& baseline = comparison.groups[comparison.baseline];
  std::vector<std::string> unpaired;
  for (const GroupDifference& difference : comparison.differences) {
    if (difference.baseline != comparison.baseline || difference.metric != 0) continue;
    const RunGroup& group = comparison.groups[difference.group];
    if (!difference.paired_seeds) {
      unpaired.push_back(named(group));
    } else if (difference.seeds.size() < std::max(group.runs.size(), baseline.runs.size())) {
      warnings.push_back(fmt::format("{}: the difference uses the seeds that {} has, too, alone: {}", named(group),
                                     named(baseline), fmt::join(difference.seeds, ", ")));
    }
  }
  if (unpaired.empty()) return;
  warnings.push_back(fmt::format("seeds are not paired where a group has none of the seeds of {}: {}", named(baseline),
                                 fmt::join(unpaired, ", ")));
}

}  // namespace

std::vector<std::string> warnings_of(const Comparison& comparison) {
  std::vector<std::string> warnings;
  warn_of_unequal_data(comparison, warnings);
  for (const ComparedRun& run : comparison.runs) {
    if (run.evaluation.trained.step < run.newest_checkpoint) {
      warnings.push_back(
          fmt::format("{}: the evaluation is that of step {}, and there is a checkpoint of step {}; "
                      "quire eval {} stores a newer one",
                      run.path, run.evaluation.trained.step, run.newest_checkpoint, run.path));
    }
    if (!run.evaluation.as_trained) {
      warnings.push_back(
          fmt::format("{}: the evaluation computes something else than training did (evaluate.set)", run.path));
    }
  }
  warn_of_seeds(comparison, warnings);
  return warnings;
}

}  // namespace quire
