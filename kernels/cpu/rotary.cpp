#include "kernels/rotary.h"

#include "kernels/checks.h"
#include "kernels/cpu/rotate.h"

namespace quire::cpu {

namespace {

void rotary_table(const Tensor& table, const Tensor& frequency, int64_t origin, int64_t step) {
  check_rotary_table(table, frequency);
  const int64_t pairs = table.dim(2);
  const double* per_position = frequency.data<double>();
  dispatch("rotary_table", table.dtype(), [&](auto type) {
    using T = decltype(type);
    for_rows(table.dim(0), 2 * pairs, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* row = table.data<T>() + n * 2 * pairs;
        for (int64_t i = 0; i < pairs; ++i) {
          const double angle = static_cast<double>((n - origin) * step) * per_position[i];
          row[i] = static_cast<T>(std::cos(angle));
          row[pairs + i] = static_cast<T>(std::sin(angle));
        }
      }
    });
  });
}

void rotary(const Tensor& out, const ops::RotaryInputs& in) {
  check_rotary(out, in);
  const int64_t rows = in.x.dim(0);
  const int64_t tokens = in.x.dim(1);
  const int64_t heads = in.x.dim(2);
  const int64_t size = in.x.dim(3);
  const int64_t pairs = in.table.dim(2);
  const bool ring = in.head.defined();
  const bool given = in.position.defined();
  dispatch("rotary", out.dtype(), [&](auto type) {
    using T = decltype(type);
    for_rows(rows * tokens, heads * size, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        int64_t position = given ? in.position.data<int32_t>()[token] : token % tokens;
        if (ring) {
          const int64_t age = (in.head.data<int32_t>()[token / tokens] - 1 - position + tokens) % tokens;
          position = -1 - age;
        }
        QUIRE_CHECK(in.origin + position >= 0 && in.origin + position < in.table.dim(0),
                    "rotary: position {} is outside a table of {} with position 0 at {}", position, in.table.dim(0),
                    in.origin);
        const T* angles = in.table.data<T>() + (in.origin + position) * 2 * pairs;
        for (int64_t h = token * heads; h < (token + 1) * heads; ++h) {
          rotate(out.data<T>() + h * size, in.x.data<T>() + h * size, angles, pairs, size, in.inverse, in.interleaved);
        }
      }
    });
  });
}

}  // namespace

void bind_rotary() {
  ops::rotary_table.bind(DeviceKind::cpu, rotary_table);
  ops::rotary.bind(DeviceKind::cpu, rotary);
}

}  // namespace quire::cpu
