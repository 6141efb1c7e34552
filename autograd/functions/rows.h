// Products of batches, and rows of tables selected by index.
#pragma once

#include "autograd/tape.h"

namespace quire {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
// Returns c [.., M, N] = op(a) [.., M, K] op(b) [.., K, N], one product for each index of the leading axes, which are
// broadcast as in NumPy.
Variable matmul(Tape& tape, const Variable& a, const Variable& b, const MatmulOptions& options = {});

// Returns out [.., M, E] = table[.., index[.., m]]. Either tables [.., N, E] and index i32 [.., M] have the same
// leading axes, or there is one table [N, E] and an index of any shape. A negative index gives zeros and has no
// gradient.
Variable gather_rows(Tape& tape, const Variable& table, const Tensor& index);
// Returns out [.., N, E] = sum over m of x[.., m] where index[.., m] = n; x [.., M, E], index i32 [.., M]. Entries with
// a negative index are left out. Sums run in the order of m.
Variable scatter_rows(Tape& tape, const Variable& x, const Tensor& index, int64_t rows);

// Returns i32 [.., K]: the positions of the K largest scores along the last axis, the largest first, ties to the lowest
// position; -1 where mask (u8, broadcast to the scores, may be undefined) keeps fewer. The choice has no gradient.
Tensor top_k(const Tensor& scores, int64_t k, const Tensor& mask = {});

}  // namespace quire
