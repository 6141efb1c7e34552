// Which row reads which part of which document in a step. The next document goes to the first global row that becomes
// free, the lowest one of several. This follows from the documents' lengths alone, so every rank computes it for all
// rows and the result does not depend on the number of ranks.
#pragma once

#include <span>
#include <vector>

#include "data/batch_options.h"
#include "data/cursor.h"
#include "data/document_order.h"

namespace quire {

// A run of positions of one row: BOS is offset 0 of a document, its last token offset `length`.
struct Piece {
  int64_t row = 0;
  int64_t position = 0;  // in the row
  int64_t count = 0;
  int64_t document = 0;  // index in the split
  int64_t offset = 0;    // of the first position in the document
  bool operator==(const Piece&) const = default;
};

class Dealing {
 public:
  // Offsets are those of Split::offsets(); they must outlive this.
  Dealing(std::span<const int64_t> offsets, const BatchOptions& options);

  Cursor start() const;
  // Error(checkpoint) when the cursor cannot belong to this corpus and these options.
  void check(const Cursor& cursor) const;
  // The pieces of the next step, sorted by row and position; moves the cursor. Rows for which nothing is left have
  // none.
  std::vector<Piece> step(Cursor& cursor) const;
  // Only without `endless`: every document was dealt and read.
  bool done(const Cursor& cursor) const;

 private:
  int64_t positions(int64_t place) const;  // of a document with its BOS
  bool exhausted(const Cursor& cursor) const;

  std::span<const int64_t> offsets_;
  BatchOptions options_;
  DocumentOrder order_;
};

}  // namespace quire
