// Rotary positions (Su et al. 2021, "RoFormer"): pairs of features are rotated by an angle that grows with the
// position, so that q.k depends on the distance only.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// table [N, 2, P]: row n holds the cosines, then the sines of (n - origin) * step * frequency[i], 0 <= i < P: the
// angles of position (n - origin) * step. frequency f64 [P] are the angles per position. Angles are computed in f64.
QUIRE_OP(rotary_table, const Tensor& table, const Tensor& frequency, int64_t origin, int64_t step);

struct RotaryInputs {
  Tensor x;            // [R, N, H, D]
  Tensor table;        // made by rotary_table with this origin; 2 P <= D
  Tensor head;         // i32 [R], optional: x is a ring whose next write goes to slot head
  Tensor position;     // i32 [R, N], optional, without head: the positions of the tokens
  int64_t origin = 0;  // row of the table that belongs to position 0
  bool inverse = false;
  bool interleaved = false;  // pairs are features 2 i and 2 i + 1

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&x, &table, &head, &position}) f(*tensor);
  }
};
// Features i and i + P of every head, 0 <= i < P, are rotated by the angle of the token's position; the other D - 2 P
// stay the same. Without head and position token n stands at position n; in a ring of N slots the newest entry, in slot
// head - 1, stands at -1, the one before at -2, and so on round. inverse rotates back, which is also the backward pass.
// out may be x.
QUIRE_OP(rotary, const Tensor& out, const RotaryInputs& in);

}  // namespace quire::ops
