// Sinusoids by distance and by position.
#include <cmath>

#include "kernels/position.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

void add_tables(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const auto& [entries, width, clamp, base] :
       {std::tuple{1, 2, 0, 1e4}, {13, 6, 0, 1e5}, {301, 34, 0, 1e4}, {29, 8, 7, 1e4}}) {
    add_in_place(
        cases, "sinusoid", std::to_string(entries) + "x" + std::to_string(width) + (clamp > 0 ? "_clamped" : ""),
        {random.normal({entries, width})}, 1,
        [limit = clamp, b = base](const Tensors& in) { ops::sinusoid(in[0], limit, b); },
        [n = entries, e = width, limit = clamp, b = base](const Tensors& in) {
          for (int64_t i = 0; i < in[0].numel(); ++i) {
            const int64_t distance = n - 1 - i / e;
            const int64_t d = limit > 0 ? std::min<int64_t>(distance, limit) : distance;
            const int64_t column = i % e;
            const double w = std::pow(b, -2.0 * static_cast<double>(column % (e / 2)) / e);
            const double angle = static_cast<double>(d) * w;
            values(in[0])[i] = column < e / 2 ? std::sin(angle) : std::cos(angle);
          }
        });
  }
  RandomTensors positions(131);
  for (const auto& [rows, width, largest] : {std::tuple{1, 2, 1}, {31, 34, 100000}, {0, 4, 1}}) {
    add_in_place(
        cases, "sinusoid_at", std::to_string(rows) + "x" + std::to_string(width),
        {positions.normal({rows, width}), positions.integers({rows}, 0, largest)}, 1,
        [](const Tensors& in) { ops::sinusoid_at(in[0], in[1], 1e5); },
        [e = width](const Tensors& in) {
          for (int64_t i = 0; i < in[0].numel(); ++i) {
            const int64_t column = i % e;
            const double w = std::pow(1e5, -2.0 * static_cast<double>(column % (e / 2)) / e);
            const double angle = static_cast<double>(at(in[1], i / e)) * w;
            values(in[0])[i] = column < e / 2 ? std::sin(angle) : std::cos(angle);
          }
        });
  }
}

}  // namespace

void add_lookup_cases(std::vector<OpCase>& cases) {
  RandomTensors random(5);
  add_tables(cases, random);
}

}  // namespace quire::test
