// Reads documents in overlapping windows: a window begins every `stride` tokens of a document, has data.subsequence
// tokens, carries no state, and counts only the targets that no earlier window has counted. Published perplexities of
// models without a memory are computed so.
#pragma once

#include <span>
#include <vector>

#include "data/batches/sampler.h"

namespace quire {

class StridedWindows : public Sampler {
 public:
  // Reads options.only, or all documents, whose Split::offsets() are given. The stride is at most data.subsequence, and
  // nothing is inserted. Windows without a target that counts (options.count_last) are left out.
  StridedWindows(std::span<const int64_t> offsets, const BatchOptions& options, int64_t stride);

  int64_t windows() const { return first_window_.back(); }
  Cursor start() const override;
  void check(const Cursor& cursor) const override;
  // Gives each row the next window, of whatever document. Pieces have place 0: a window is read like a document.
  std::vector<Piece> step(Cursor& cursor) const override;
  bool done(const Cursor& cursor) const override { return cursor.next_place >= windows(); }

 private:
  BatchOptions options_;
  int64_t stride_;
  std::vector<int64_t> documents_;
  std::vector<int64_t> targets_;       // of each document
  std::vector<int64_t> left_out_;      // windows at its beginning
  std::vector<int64_t> first_window_;  // [documents + 1]: number of its first window
};

}  // namespace quire
