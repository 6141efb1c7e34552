// The batches of an evaluation: documents from beginning to end with their state, or in windows without state.
#pragma once

#include <optional>
#include <vector>

#include "data/batches/batch_source.h"
#include "data/batches/strided_windows.h"

namespace quire {

struct EvaluationBatch {
  Batch batch;
  // The token of its document that position 0 of a row stands for, for every row. Empty: the first one.
  std::vector<int64_t> origins = {};
};

class EvaluationBatches {
 public:
  // With a stride documents are read in windows (StridedWindows). The corpus must outlive this.
  EvaluationBatches(Corpus& corpus, const std::string& split, const BatchOptions& options,
                    const std::optional<int64_t>& stride);
  // Returns nothing when everything was read.
  std::optional<EvaluationBatch> next();

 private:
  BatchOptions options_;
  std::optional<BatchSource> documents_;
  std::optional<StridedWindows> windows_;
  std::optional<Packer> packer_;
  Cursor cursor_;
};

}  // namespace quire
