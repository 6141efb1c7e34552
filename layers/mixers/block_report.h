// Reports what the queries of a pass have read of earlier blocks, for later traces and for telemetry
// (layers/retrieval.h).
#pragma once

#include <string>
#include <vector>

#include "layers/carried/block_log.h"
#include "layers/mixers/key_blocks.h"

namespace quire {

// One of the blocks that every query reads.
struct BlockRead {
  Tensor lse;    // [R, H, T]: log of its sum over gates; -inf where the query reads none
  Tensor slot;   // i32 [R, T, H, 1]: of a stored block, or
  Tensor block;  // i32 [R, T, H, 1]: the number of a block of the pass
};

// Holds the sum that the gates of a query are normalised by.
struct GateSum {
  Tensor lse;    // wide [R, H, T]: log of the sum over the gates of all reads and of what is normalised with them
  Tensor share;  // [R, T, H, 1]: the share of the result that these gates have; undefined: all of it
};

// The n-th of what queries have chosen, of i32 [R, T, H, K]: i32 [R, T, H, 1].
Tensor one_of(const Tensor& chosen, int64_t n);
// Returns what queries read of each stored block that they have chosen: mass [R, H, T, K] of listed_attention, and slot
// i32 [R, T, H, K] in the store.
std::vector<BlockRead> stored_reads(const Tensor& mass, const Tensor& slot);

// Reports what was read, and as telemetry: NAME.stored, the mean number of blocks that a row stores;
// NAME.different, the mean number of stored blocks that some query of a row reads; NAME.back.N, the share of what is
// read that lies N to 2 N - 1 blocks before the block of the query, for N = 1, 2, 4, ... store may be null,
// and `whole` is undefined without reads.
void report_blocks(const Forward& f, const std::string& name, int64_t period, const BlockLog* store,
                   const CarriedBlocks& carried, const KeyBlocks& blocks, const std::vector<BlockRead>& reads,
                   const GateSum& whole);

}  // namespace quire
