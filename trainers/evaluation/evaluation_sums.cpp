#include "trainers/evaluation/evaluation_sums.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

namespace quire {

namespace {

// A bin of one document, in the form that ranks exchange.
struct DocumentBin {
  int64_t document = 0;
  PositionBin bin;
};

static_assert(std::is_trivially_copyable_v<DocumentSums> && std::is_trivially_copyable_v<DocumentBin> &&
              std::is_trivially_copyable_v<TargetLoss>);

// Returns the elements of all ranks, in rank order.
template <typename T>
std::vector<T> gathered(Ranks& ranks, const std::vector<T>& mine) {
  std::vector<T> all;
  for (const std::string& text : ranks.gather(packed<T>(mine))) {
    const std::vector<T> part = unpacked<T>(text);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

void DocumentSums::add(const DocumentSums& other) {
  targets += other.targets;
  recalled += other.recalled;
  correct += other.correct;
  nll.add(other.nll);
  recall_nll.add(other.recall_nll);
}

EvaluationSums::EvaluationSums(int64_t documents, const std::optional<PositionBins>& bins, bool each)
    : documents_(static_cast<size_t>(documents)), each_(each) {
  if (bins) bins_.assign(static_cast<size_t>(documents), *bins);
  for (int64_t document = 0; document < documents; ++document) {
    documents_[static_cast<size_t>(document)].document = document;
  }
}

void EvaluationSums::add(int64_t document, double nll, int64_t position, int64_t bytes, int64_t seen) {
  DocumentSums& sums = documents_[static_cast<size_t>(document)];
  ++sums.targets;
  sums.nll.add(nll);
  if (!bins_.empty()) bins_[static_cast<size_t>(document)].add(position, nll, bytes);
  seen_ += seen;
}

void EvaluationSums::add_recalled(int64_t document, double nll, bool correct) {
  DocumentSums& sums = documents_[static_cast<size_t>(document)];
  ++sums.recalled;
  sums.correct += correct ? 1 : 0;
  sums.recall_nll.add(nll);
}

void EvaluationSums::add_up(Ranks& ranks) {
  if (ranks.size() == 1) return;
  std::vector<DocumentSums> read;  // documents that this rank has read
  for (DocumentSums& sums : documents_) {
    if (sums.targets > 0) read.push_back(sums);
    sums = {.document = sums.document, .targets = 0, .recalled = 0, .correct = 0, .nll = {}, .recall_nll = {}};
  }
  for (const DocumentSums& sums : gathered(ranks, read)) documents_[static_cast<size_t>(sums.document)].add(sums);
  std::vector<DocumentBin> mine;
  for (size_t document = 0; document < bins_.size(); ++document) {
    for (const PositionBin& bin : bins_[document].bins()) {
      if (bin.tokens > 0) mine.push_back({static_cast<int64_t>(document), bin});
    }
    bins_[document].clear();
  }
  for (const DocumentBin& of : gathered(ranks, mine)) bins_[static_cast<size_t>(of.document)].add(of.bin);
  if (each_) targets_ = gathered(ranks, targets_);
  const std::vector<ExactSum> ends = gathered(ranks, std::vector<ExactSum>{ends_});
  ends_ = {};
  for (const ExactSum& of_rank : ends) ends_.add(of_rank);
  const std::vector<int64_t> seen = gathered(ranks, std::vector<int64_t>{seen_});
  seen_ = 0;
  for (const int64_t of_rank : seen) seen_ += of_rank;
}

int64_t EvaluationSums::targets() const {
  int64_t sum = 0;
  for (const DocumentSums& sums : documents_) sum += sums.targets;
  return sum;
}

std::vector<PositionBin> EvaluationSums::bins() const {
  if (bins_.empty()) return {};
  PositionBins all = bins_.front();
  for (size_t document = 1; document < bins_.size(); ++document) {
    for (const PositionBin& bin : bins_[document].bins()) all.add(bin);
  }
  return all.bins();
}

std::vector<PositionBin> EvaluationSums::bins(int64_t document) const {
  return bins_.empty() ? std::vector<PositionBin>{} : bins_[static_cast<size_t>(document)].bins();
}

std::vector<TargetLoss> EvaluationSums::take_targets() {
  std::vector<TargetLoss> targets = std::exchange(targets_, {});
  std::sort(targets.begin(), targets.end(), [](const TargetLoss& a, const TargetLoss& b) {
    return std::tie(a.document, a.position) < std::tie(b.document, b.position);
  });
  return targets;
}

}  // namespace quire
