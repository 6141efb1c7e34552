// Sums over the targets that were read. The sums of ranks that read different documents add up to those of one rank
// that reads all of them, exactly and in any order.
#pragma once

#include <optional>
#include <vector>

#include "core/batch.h"
#include "core/ranks/ranks.h"
#include "trainers/evaluation/exact_sum.h"
#include "trainers/evaluation/position_bins.h"
#include "trainers/evaluation/target_loss.h"

namespace quire {

struct DocumentSums {
  int64_t document = 0;
  int64_t targets = 0;
  int64_t recalled = 0;
  int64_t correct = 0;  // recalled targets that were predicted right
  ExactSum nll;
  ExactSum recall_nll;

  void add(const DocumentSums& other);
};

class EvaluationSums {
 public:
  // A copy of `bins`, which must be empty, is used for every document; without it positions are not counted. With
  // `each`, every target is also kept separately.
  EvaluationSums(int64_t documents, const std::optional<PositionBins>& bins, bool each = false);

  // Adds a target of a document: its loss, its position in the text with the number of bytes of the target, and the
  // number of tokens that it sees.
  void add(int64_t document, double nll, int64_t position, int64_t bytes, int64_t seen);
  // Adds the loss of the end of a document, which add() has counted, too.
  void add_end(double nll) { ends_.add(nll); }
  void add_recalled(int64_t document, double nll, bool correct);
  bool keeps_each() const { return each_; }
  void keep(const TargetLoss& target) { targets_.push_back(target); }
  // Replaces the sums on every rank by the sums over all ranks.
  void add_up(Ranks& ranks);

  const std::vector<DocumentSums>& documents() const { return documents_; }
  int64_t targets() const;
  int64_t seen() const { return seen_; }
  const ExactSum& ends() const { return ends_; }
  // Return the bins of all documents, and of one; empty without bins.
  std::vector<PositionBin> bins() const;
  std::vector<PositionBin> bins(int64_t document) const;
  // Returns the targets in the order of documents and positions, and removes them here.
  std::vector<TargetLoss> take_targets();

 private:
  std::vector<DocumentSums> documents_;
  std::vector<PositionBins> bins_;  // one per document, or empty
  bool each_;
  std::vector<TargetLoss> targets_;
  int64_t seen_ = 0;
  ExactSum ends_;
};

}  // namespace quire
