// What the targets that were read add up to. The sums of ranks that read different documents add up to those of one
// rank that reads all of them, exactly and in any order.
#pragma once

#include <optional>
#include <vector>

#include "core/batch.h"
#include "core/ranks/ranks.h"
#include "trainers/evaluation/exact_sum.h"
#include "trainers/evaluation/position_bins.h"

namespace quire {

struct DocumentSums {
  int64_t document = 0;
  int64_t targets = 0;
  int64_t recalled = 0;
  int64_t correct = 0;  // of those recalled
  ExactSum nll;
  ExactSum recall_nll;

  void add(const DocumentSums& other);
};

class EvaluationSums {
 public:
  EvaluationSums(int64_t documents, std::optional<PositionBins> bins);

  // A target of a document: its loss, its position in the text with the bytes that the target has there, and the tokens
  // that it sees.
  void add(int64_t document, double nll, int64_t position, int64_t bytes, int64_t seen);
  void add_recalled(int64_t document, double nll, bool correct);
  // Every rank has the sums of all.
  void add_up(Ranks& ranks);

  const std::vector<DocumentSums>& documents() const { return documents_; }
  int64_t targets() const;
  int64_t seen() const { return seen_; }
  std::vector<PositionBin> bins() const;

 private:
  std::vector<DocumentSums> documents_;
  std::optional<PositionBins> bins_;
  int64_t seen_ = 0;
};

}  // namespace quire
