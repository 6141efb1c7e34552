// Decides which positions of which documents a step reads. The decision depends only on the lengths of the documents,
// the options and the cursor: every rank makes it for all rows, so it does not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/batches/batch_options.h"
#include "data/batches/cursor.h"
#include "data/corpus/documents.h"

namespace quire {

// A run of model positions of one row, inserted tokens included.
struct Piece {
  int64_t row = 0;
  int64_t position = 0;  // in the row
  int64_t count = 0;
  int64_t document = 0;  // index in the split
  int64_t offset = 0;    // offset of the first token in its document: BOS is 0, the last token is `length`
  int64_t place = 0;     // Batch::position of the first position
  int64_t phase = 0;     // position of the first one as Insertion counts it, which may start from another origin
  int64_t context = 0;   // the first so many tokens are read, and their targets do not count
  bool stream = false;   // all documents are read as one text: the pieces of a row form one segment
  bool operator==(const Piece&) const = default;
};

class Sampler {
 public:
  virtual ~Sampler();
  virtual Cursor start() const = 0;
  // Throws Error(checkpoint) when the cursor cannot belong to this corpus and these options.
  virtual void check(const Cursor& cursor) const = 0;
  // Returns the pieces of the next step, sorted by row and position, and moves the cursor. Rows with nothing left have
  // no piece.
  virtual std::vector<Piece> step(Cursor& cursor) const = 0;
  // Returns true when everything was read; never with `endless`.
  virtual bool done(const Cursor& cursor) const = 0;
};

}  // namespace quire
