// The compressive memory of Infini-attention (Munkhdalai et al. 2024, "Leave No Context Behind", section 3.1): a matrix
// M and a normaliser z per key head, which queries read and whole blocks of keys and values are added to:
//
//   read(f) = (f M) / (f . z)      0 where f . z is 0: nothing has been written
//   M <- keep M + sum phi(k)^T v'  z <- keep z + sum phi(k)      phi(x) = x + 1 for x > 0, exp(x) otherwise
//   v' = v, or with the delta rule v - read(phi(k)) of the memory before the block
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "layers/mixers/infini_config.h"

namespace quire {

// Tokens of one block of a document in a row: those of the pass read the memory, and behind them keys are written to
// it. Keys count from the first key of the row, which may lie before the pass.
struct InfiniPiece {
  int64_t row = 0;
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
  bool begins = false;  // the memory is empty before it
  bool cut = false;     // the memory before it is constant in the backward pass
};

struct InfiniShape {
  int64_t rows, tokens;  // R, T
  int64_t heads;         // H
  int64_t key_heads;     // Hk
};

// Lists the pieces of all rows as tables. The pieces of a row follow each other in steps, whose number is that of the
// longest row; steps in which some row reads or writes have a place in the products over all rows.
struct InfiniTables {
  struct Step {
    Tensor begins, cut, writes;       // u8 [R, 1, 1, 1]; undefined where no row does
    int64_t read = -1, written = -1;  // places in the products; -1: no row reads or writes
  };
  std::vector<Step> steps;
  int64_t queries = 0, keys = 0;  // of the longest piece
  int64_t reads = 0, writes = 0;  // steps in which some row reads, or writes
  Tensor query;                   // i32 [R, reads H queries]: places in [T, H]
  Tensor key;                     // i32 [R, writes Hk keys]: places in [S, Hk]
  Tensor out;                     // i32 [R, T H]: places in [reads, H, queries]; -1: a token that reads nothing
};
// pieces: in the order of rows and tokens. device: of the tables.
InfiniTables infini_tables(const std::vector<InfiniPiece>& pieces, const InfiniShape& shape, Device device);

struct InfiniState {
  Variable matrix;      // [R, Hk, D, Dv]
  Variable normaliser;  // [R, Hk, D, 1]
};

struct InfiniRead {
  Variable out;                    // [R, T, H, Dv]; undefined when no token reads
  std::vector<InfiniState> after;  // each step
};

// q [R, T, H, D], k [R, S, Hk, D], v [R, S, Hk, Dv]: not rotated, f32 or f64.
InfiniRead infini_memory(Tape& tape, const Variable& q, const Variable& k, const Variable& v, InfiniState state,
                         const InfiniTables& tables, InfiniUpdate update, double keep = 1);

}  // namespace quire
