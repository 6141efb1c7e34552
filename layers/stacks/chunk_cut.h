// Cuts a pass into chunks of equal length, counted from the beginning of each document. The last position of a chunk is
// its landmark, which chooses what the next chunk reads.
#pragma once

#include <vector>

#include "layers/carried/carried_blocks.h"

namespace quire {

// A chunk that is whole at the end of the pass.
struct WholeChunk {
  int64_t segment;  // of the row's documents
  bool carried;     // its document begins with the state of the row
  int64_t number;   // in the document
  int64_t mark;     // the place of its landmark in the row
};

struct ChunkCut {
  int64_t positions = 1;                       // C, of a chunk
  int64_t max_chunks = 0;                      // N: whole chunks of a row
  std::vector<std::vector<WholeChunk>> whole;  // by row
  std::vector<int64_t> of_last;                // [R]: how many of them belong to the row's last document
  bool aligned = false;                        // chunk i of every row consists of its places i C, ..., (i + 1) C - 1
  Tensor lines;  // i32 [R, N C]: where their positions stand behind the begun chunks, -1: there is none
  Tensor marks;  // i32 [R, N]: WholeChunk::mark, or -1
  Tensor count;  // i32 [R]
  // i32 [R, T]: which list a query reads: 0, the one that the pass begins with; 1 + i, that of the row's chunk i; -1.
  Tensor list;
};

// `carried` is what rows carry; it is empty for a model that carries no chunks, where the rest of a chunk that began
// before the subsequence is no chunk.
ChunkCut cut_chunks(const Forward& f, int64_t positions, const CarriedBlocks& carried, bool carries);

}  // namespace quire
