// Decides which row reads which part of which document in a step. A row reads one document at a time, and the next
// document goes to the global row that becomes free first; of several such rows, to the lowest.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data/batches/sampler.h"
#include "data/corpus/documents.h"

namespace quire {

class Dealing : public Sampler {
 public:
  // Offsets are those of Split::offsets(); they must outlive this.
  Dealing(std::span<const int64_t> offsets, const BatchOptions& options);
  Dealing(std::shared_ptr<const ReadingList> list, const BatchOptions& options);

  Cursor start() const override;
  void check(const Cursor& cursor) const override;
  std::vector<Piece> step(Cursor& cursor) const override;
  bool done(const Cursor& cursor) const override;

 private:
  int64_t positions(int64_t place) const;  // model positions of the document
  bool exhausted(const Cursor& cursor) const;

  std::shared_ptr<const ReadingList> list_;
  BatchOptions options_;
};

}  // namespace quire
