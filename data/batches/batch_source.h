// A stream of batches, each with the cursor from which the next one follows.
#pragma once

#include <optional>

#include "core/batch.h"
#include "data/batches/cursor.h"
#include "data/batches/mixture.h"
#include "data/batches/packer.h"
#include "data/batches/sampler.h"
#include "data/corpus/corpus.h"

namespace quire {

struct CursoredBatch {
  Batch batch;
  Cursor after;  // the cursor to save once the batch has been consumed
};

class BatchStream {
 public:
  virtual ~BatchStream();
  // Returns nothing when the documents have run out.
  virtual std::optional<CursoredBatch> next() = 0;
};

// Makes each batch when it is asked for.
class BatchSource : public BatchStream {
 public:
  // The corpus must outlive this. Throws Error(checkpoint) when the cursor does not fit.
  BatchSource(Corpus& corpus, const std::string& split, const BatchOptions& options);
  BatchSource(Corpus& corpus, const std::string& split, const BatchOptions& options, Cursor resume_from);
  // Reads the batches of a mixture, which no other reader may use at the same time.
  BatchSource(std::shared_ptr<const Mixture> mixture, const Tokenizer& tokenizer, const BatchOptions& options);
  BatchSource(std::shared_ptr<const Mixture> mixture, const Tokenizer& tokenizer, const BatchOptions& options,
              Cursor resume_from);
  std::optional<CursoredBatch> next() override;
  const Cursor& cursor() const { return cursor_; }  // from which the next batch follows

 private:
  std::unique_ptr<Sampler> sampler_;
  std::shared_ptr<const Mixture> mixture_;
  Packer packer_;
  Cursor cursor_;
};

}  // namespace quire
