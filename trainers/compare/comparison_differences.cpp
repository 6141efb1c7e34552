// Pairs the documents and seeds of a group with those of the baseline.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trainers/compare/comparison.h"

namespace quire {

namespace {

// Several documents may have one name: the n-th of a run belongs to the n-th of another.
using DocumentKey = std::pair<std::string, int64_t>;

std::vector<DocumentKey> keys_of(const StoredEvaluation& evaluation) {
  std::map<std::string, int64_t> seen;
  std::vector<DocumentKey> keys;
  for (const StoredDocument& document : evaluation.documents) keys.emplace_back(document.name, seen[document.name]++);
  return keys;
}

// Reads the figures of the documents that all runs have read alike, in the order of the first run.
class SharedDocuments {
 public:
  SharedDocuments(const std::vector<const StoredEvaluation*>& evaluations, const DocumentMetric& metric)
      : metric_(metric) {
    for (const StoredEvaluation* evaluation : evaluations) {
      const std::vector<DocumentKey> keys = keys_of(*evaluation);
      std::map<DocumentKey, const StoredDocument*>& by_key = tables_.emplace_back();
      for (size_t i = 0; i < keys.size(); ++i) by_key[keys[i]] = &evaluation->documents[i];
    }
    for (const DocumentKey& key : keys_of(*evaluations.front())) {
      if (is_shared(key)) shared_.push_back(key);
    }
  }

  size_t size() const { return shared_.size(); }
  // Returns the figures of evaluation `number`.
  std::vector<double> figures(size_t number) const {
    std::vector<double> values;
    for (const DocumentKey& key : shared_) {
      values.push_back(*metric_.of(*tables_[number].at(key)));
    }
    return values;
  }

 private:
  bool is_shared(const DocumentKey& key) const {
    const StoredDocument& first = *tables_.front().at(key);
    const int64_t size = metric_.size_of(first);
    if (size == 0) return false;
    return std::all_of(tables_.begin(), tables_.end(), [&](const auto& by_key) {
      const auto found = by_key.find(key);
      return found != by_key.end() && metric_.size_of(*found->second) == size && found->second->bytes == first.bytes;
    });
  }

  DocumentMetric metric_;
  std::vector<std::map<DocumentKey, const StoredDocument*>> tables_;
  std::vector<DocumentKey> shared_;
};

// Numbers of the runs of two groups that count: pairs with equal seeds where there are any, else all.
struct CountedRuns {
  std::vector<size_t> variant, baseline;
  bool paired = false;
};

CountedRuns counted_runs(const RunGroup& variant, const RunGroup& baseline, const std::vector<ComparedRun>& runs) {
  CountedRuns counted;
  std::set<size_t> used;
  for (const size_t number : variant.runs) {
    const auto partner = std::find_if(baseline.runs.begin(), baseline.runs.end(), [&](size_t other) {
      return runs[other].seed() == runs[number].seed() && used.count(other) == 0;
    });
    if (partner == baseline.runs.end()) continue;
    used.insert(*partner);
    counted.variant.push_back(number);
    counted.baseline.push_back(*partner);
  }
  counted.paired = !counted.variant.empty();
  if (!counted.paired) {
    counted.variant = variant.runs;
    counted.baseline = baseline.runs;
  }
  return counted;
}

}  // namespace

GroupDifference group_difference(const Comparison& comparison, size_t group, size_t baseline_group, size_t metric) {
  const std::vector<ComparedRun>& runs = comparison.runs;
  const CountedRuns counted = counted_runs(comparison.groups[group], comparison.groups[baseline_group], runs);
  GroupDifference result;
  result.group = group;
  result.baseline = baseline_group;
  result.metric = metric;
  result.paired_seeds = counted.paired;
  std::vector<const StoredEvaluation*> evaluations;
  for (const size_t number : counted.variant) {
    result.seeds.push_back(runs[number].seed());
    evaluations.push_back(&runs[number].evaluation);
  }
  for (const size_t number : counted.baseline) evaluations.push_back(&runs[number].evaluation);
  const auto differs = [&](const auto& field) {
    return std::any_of(evaluations.begin(), evaluations.end(),
                       [&](const StoredEvaluation* one) { return one->*field != evaluations.front()->*field; });
  };
  const bool other_tokens = differs(&StoredEvaluation::tokenizer);
  if (other_tokens && comparison.metrics[metric].kind != DocumentMetric::Kind::bits_per_byte) {
    result.without_difference = "the tokenizers differ, and this is a figure of tokens";
    return result;
  }
  const SharedDocuments shared(evaluations, comparison.metrics[metric]);
  result.documents = static_cast<int64_t>(shared.size());
  // A corpus that was prepared again, as for another tokenizer, has the same text where all documents agree.
  const bool all_agree = std::all_of(evaluations.begin(), evaluations.end(), [&](const StoredEvaluation* one) {
    return one->documents.size() == shared.size();
  });
  if (differs(&StoredEvaluation::corpus) && !all_agree) {
    result.without_difference = "the corpora differ";
  } else if (shared.size() == 0) {
    result.without_difference = "the runs have read no document in common";
  }
  if (!result.without_difference.empty()) return result;
  SeedValues variant, baseline;
  for (size_t i = 0; i < evaluations.size(); ++i) {
    (i < counted.variant.size() ? variant : baseline).push_back(shared.figures(i));
  }
  result.difference = paired_difference(variant, baseline, counted.paired);
  if (!result.difference->interval) {
    result.without_interval =
        fmt::format("{} documents, and an interval needs {}", shared.size(), kMinDocumentsOfInterval);
  }
  return result;
}

}  // namespace quire
