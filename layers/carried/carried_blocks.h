// Tables of the blocks that the rows of a layer carry when a pass begins, where a document is cut into blocks of equal
// length: whole blocks, and the part of the block that the document has begun.
#pragma once

#include <string>
#include <vector>

#include "layers/pass/forward.h"

namespace quire {

// Each vector is [R]. A row whose first document begins in the pass carries nothing.
struct CarriedBlocks {
  std::vector<int64_t> tail;     // positions of the begun block that the row carries
  std::vector<int64_t> length;   // whole blocks
  std::vector<int64_t> written;  // whole blocks of the document so far
  // The first block of the document that is known from its beginning on: 0, or more in a row that goes on after its
  // state was dropped.
  std::vector<int64_t> first;
  int64_t max_tail = 0;
  // Places for stored blocks in tensors, of which each row fills the last ones; even the longest row may leave some
  // empty (with_places_to_spare). At most the capacity of a row.
  int64_t max_length = 0;
};

// Makes the tables. `period` is the number of positions of a block; `tail` are logs of all positions, and `blocks` logs
// of whole blocks. Throws Error(config) that names the layer when a row begins to read a document behind its first
// position.
CarriedBlocks carried_blocks(const Forward& f, int64_t period, LogGroupId tail, LogGroupId blocks,
                             const std::string& layer);

// Returns `blocks` rounded up by at most a sixteenth. A tensor with a place for each block then keeps its size over
// many passes of a growing document, so that its memory is used again; with a new size in each pass, the memory that
// the allocator keeps would grow with the square of the document.
int64_t with_places_to_spare(int64_t blocks);

// Returns a tensor with one number for each row: i32 [R].
Tensor by_row(const std::vector<int64_t>& values, Device device);

}  // namespace quire
