// Rotary positions.
#include <cmath>

#include "autograd/functions/rotary.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"
#include "tests/support/rotary_angles.h"

namespace quire::test {

namespace {

struct Form {
  std::string name;
  int64_t rows, tokens, heads, size, pairs;
  int64_t before = 0;  // positions of the table below zero
  bool ring = false;
  bool inverse = false;
  bool interleaved = false;
  bool positions = false;  // given ones, of a table of `before` + 19
};

double angle_of(int64_t position, int64_t pair, int64_t pairs) {
  return static_cast<double>(position) * std::pow(50.0, -static_cast<double>(pair) / static_cast<double>(pairs));
}

void add_rotary(std::vector<OpCase>& cases, RandomTensors& random, const Form& f) {
  const Tensor head = f.ring ? random.integers({f.rows}, 0, f.tokens) : Tensor();
  const Tensor given = f.positions ? random.integers({f.rows, f.tokens}, -f.before, 19) : Tensor();
  const auto settings_of = [f](const Tensors& in) {
    const Tensor table = wide_beside(in[0], {f.before + (f.positions ? 19 : f.tokens), 2, f.pairs});
    ops::rotary_table(table, rotary_frequencies(50, f.pairs, table.device()), f.before, 1);
    return ops::RotaryInputs{.x = in[0],
                             .table = table,
                             .head = in[1],
                             .position = in[2],
                             .origin = f.before,
                             .inverse = f.inverse,
                             .interleaved = f.interleaved};
  };
  const auto reference = [f](const Tensors& in) {
    const Tensor out = like(in[0]);
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t feature = i % f.size;
      const int64_t token = i / (f.size * f.heads);
      int64_t position = f.positions ? in[2].data<int32_t>()[token] : token % f.tokens;
      if (f.ring) {
        // Back from the slot before the head until the slot is met.
        int64_t slot = in[1].data<int32_t>()[token / f.tokens];
        const int64_t own_slot = token % f.tokens;
        position = 0;
        do {
          slot = (slot + f.tokens - 1) % f.tokens;
          --position;
        } while (slot != own_slot);
      }
      const double* x = values(in[0]) + (i - feature);
      if (feature >= 2 * f.pairs) {
        values(out)[i] = x[feature];
        continue;
      }
      const int64_t pair = f.interleaved ? feature / 2 : feature % f.pairs;
      const int64_t second = f.interleaved ? 2 * pair + 1 : pair + f.pairs;
      const double angle = angle_of(position, pair, f.pairs) * (f.inverse ? -1 : 1);
      const double a = x[f.interleaved ? 2 * pair : pair];
      const double b = x[second];
      values(out)[i] =
          feature != second ? a * std::cos(angle) - b * std::sin(angle) : a * std::sin(angle) + b * std::cos(angle);
    }
    return Tensors{out, out};
  };
  const Tensors inputs{random.normal({f.rows, f.tokens, f.heads, f.size}), head, given};
  add_operation(
      cases, "rotary", f.name, inputs, 2,
      [settings_of](const Tensors& in) {
        const Tensor out = like(in[0]);
        ops::rotary(out, settings_of(in));
        ops::rotary(in[0], settings_of(in));  // in place
        return Tensors{out, in[0]};
      },
      reference);
  if (f.inverse) return;  // the function calls that for its gradient
  cases.push_back(function_case("rotary", f.name + "_function", inputs, [settings_of](Tape& t, const auto& x) {
    return rotary(t, x[0], settings_of({x[0].value(), x[1].value(), x[2].value()}));
  }));
  cases.back().reference = [reference](const Tensors& in) { return Tensors{reference(in)[0]}; };
  cases.back().sum_length = 2;
}

}  // namespace

void add_rotary_cases(std::vector<OpCase>& cases) {
  RandomTensors random(11);
  for (const auto& [entries, pairs, origin, step] :
       {std::tuple{1, 1, 0, 1}, {13, 3, 5, 1}, {307, 32, 300, 1}, {9, 2, 4, 51}}) {
    add_in_place(
        cases, "rotary_table", std::to_string(entries) + "x" + std::to_string(pairs) + (step > 1 ? "_steps" : ""),
        {random.normal({entries, 2, pairs})}, 1,
        [zero = origin, p = pairs, by = step](const Tensors& in) {
          ops::rotary_table(in[0], rotary_frequencies(50, p, in[0].device()), zero, by);
        },
        [zero = origin, p = pairs, by = step](const Tensors& in) {
          for (int64_t i = 0; i < in[0].numel(); ++i) {
            const double angle = angle_of((i / (2 * p) - zero) * by, i % p, p);
            values(in[0])[i] = i / p % 2 == 0 ? std::cos(angle) : std::sin(angle);
          }
        },
        {0});
  }
  for (const Form& form :
       {Form{"one", 1, 1, 1, 2, 1}, Form{"none", 2, 0, 1, 2, 1}, Form{"segment", 3, 7, 2, 6, 3},
        Form{"some_features", 2, 5, 3, 7, 2, 4}, Form{"ring", 3, 7, 2, 4, 2, 7, true},
        Form{"ring_of_one", 2, 1, 1, 4, 2, 3, true}, Form{"inverse", 2, 9, 2, 4, 2, 9, true, true},
        Form{"many_heads", 1, 3, 9, 64, 32}, Form{"packs", 2, 37, 3, 32, 8, 4},
        Form{"packs_of_ring", 2, 9, 2, 16, 8, 9, true, true},
        Form{"packs_of_neighbours", 2, 37, 3, 32, 8, 4, false, true, true},
        Form{"blocks", 2, 601, 2, 34, 17, 601, true}, Form{"interleaved", 2, 5, 3, 7, 3, 4, false, false, true},
        Form{"positions", 3, 5, 2, 4, 2, 7, false, false, false, true},
        Form{"all", 2, 9, 2, 6, 2, 3, false, true, true, true}}) {
    add_rotary(cases, random, form);
  }
}

}  // namespace quire::test
