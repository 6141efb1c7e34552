#include "trainers/evaluation/evaluation_sums.h"

#include <array>
#include <type_traits>

namespace quire {

namespace {

static_assert(std::is_trivially_copyable_v<DocumentSums> && std::is_trivially_copyable_v<PositionBin>);

// What all ranks have, in rank order.
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

EvaluationSums::EvaluationSums(int64_t documents, std::optional<PositionBins> bins)
    : documents_(static_cast<size_t>(documents)), bins_(std::move(bins)) {
  for (int64_t document = 0; document < documents; ++document) {
    documents_[static_cast<size_t>(document)].document = document;
  }
}

void EvaluationSums::add(int64_t document, double nll, int64_t position, int64_t bytes, int64_t seen) {
  DocumentSums& sums = documents_[static_cast<size_t>(document)];
  ++sums.targets;
  sums.nll.add(nll);
  if (bins_) bins_->add(position, nll, bytes);
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
  std::vector<DocumentSums> read;  // here; the others of the split were read elsewhere
  for (DocumentSums& sums : documents_) {
    if (sums.targets > 0) read.push_back(sums);
    sums = {.document = sums.document, .targets = 0, .recalled = 0, .correct = 0, .nll = {}, .recall_nll = {}};
  }
  for (const DocumentSums& sums : gathered(ranks, read)) documents_[static_cast<size_t>(sums.document)].add(sums);
  if (bins_) {
    const std::vector<PositionBin> mine = bins_->bins();
    bins_->clear();
    for (const PositionBin& bin : gathered(ranks, mine)) bins_->add(bin);
  }
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
  return bins_ ? bins_->bins() : std::vector<PositionBin>{};
}

}  // namespace quire
