// Muon before and after its Newton-Schulz iteration.
#include <cmath>

#include "kernels/optimizer.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

void add_muon_cases(std::vector<OpCase>& cases) {
  RandomTensors random(9);
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{33001}}) {
    for (const bool nesterov : {true, false}) {
      const Tensors inputs{random.normal({count}), random.normal({count}), random.normal({count})};
      for (const double apply : {1.0, 0.0}) {
        add_in_place(
            cases, "muon_direction",
            std::to_string(count) + (nesterov ? "_nesterov" : "") + (apply == 0 ? "_not_applied" : ""), inputs,
            apply == 0 ? 0 : 2,
            [=](const Tensors& in) {
              ops::muon_direction(in[0], in[1], in[2], f64_beside(in[0], {0.5, apply}), 0.9, nesterov);
            },
            [=](const Tensors& in) {
              in[0].zero();
              for (int64_t i = 0; apply != 0 && i < count; ++i) {
                const double g = 0.5 * values(in[2])[i];
                values(in[1])[i] = 0.9 * values(in[1])[i] + g;
                values(in[0])[i] = nesterov ? g + 0.9 * values(in[1])[i] : values(in[1])[i];
              }
            },
            {0, 1, 2}, {0, 1});
      }
    }
    for (const double apply : {1.0, 0.0}) {
      add_in_place(
          cases, "muon_update", std::to_string(count) + (apply == 0 ? "_not_applied" : ""),
          {random.normal({count}), random.normal({count})}, apply == 0 ? 0 : 2,
          [=](const Tensors& in) {
            ops::muon_update(in[0], in[1], f64_beside(in[0], {0.5, apply}), 0.3, 0.1);
          },
          [=](const Tensors& in) {
            for (int64_t i = 0; i < count; ++i) {
              values(in[0])[i] -= apply * (0.1 * values(in[0])[i] + 0.3 * values(in[1])[i]);
            }
          },
          {0, 1});
    }
    for (const double square : {7.0, 0.0}) {
      add_operation(
          cases, "divide_by_norm", std::to_string(count) + (square == 0 ? "_zero" : ""), {random.normal({count})}, 1,
          [=](const Tensors& in) {
            ops::divide_by_norm(in[0], f64_beside(in[0], {square}));
            return in;
          },
          [=](const Tensors& in) {
            for (int64_t i = 0; i < count; ++i) {
              values(in[0])[i] = square == 0 ? 0 : values(in[0])[i] / std::sqrt(square);
            }
            return in;
          },
          {0});
    }
  }
}

}  // namespace quire::test
