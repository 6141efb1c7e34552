// External memories: shares of retrieved entries, entries that are left out, and vectors stored in 8 bits.
#include <cmath>
#include <limits>

#include "core/bfloat16.h"
#include "core/float8.h"
#include "kernels/knn.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void add_share(std::vector<OpCase>& cases, RandomTensors& random) {
  const Tensor part = random.normal({2, 3, 67});
  const Tensor whole = clone(part);
  for (int64_t i = 0; i < part.numel(); ++i) {
    values(whole)[i] = static_cast<float>(values(part)[i] + std::abs(values(part)[(i + 1) % part.numel()]));
  }
  values(whole)[1] = values(part)[1];               // nothing was added
  values(part)[2] = -kInfinity;                     // nothing was there before
  values(part)[3] = values(whole)[3] = -kInfinity;  // nothing at all
  add_operation(
      cases, "softmax_share", "", {part, whole}, 2,
      [](const Tensors& in) {
        const Tensor share = like(in[0]);
        ops::softmax_share(share, in[0], in[1]);
        return Tensors{share};
      },
      [](const Tensors& in) {
        const Tensor share = like(in[0]);
        for (int64_t i = 0; i < share.numel(); ++i) {
          const double all = values(in[1])[i];
          values(share)[i] = all == -kInfinity ? 0 : 1 - std::exp(values(in[0])[i] - all);
        }
        return Tensors{share};
      },
      {0, 1}, 3);
}

void add_drop(std::vector<OpCase>& cases, RandomTensors& random, const Shape& shape) {
  add_operation(
      cases, "drop_entries", std::to_string(shape.numel()),
      {random.normal({1}), random.integers(shape, 0, 50), random.flags({shape[0], shape[1]})}, 1,
      [](const Tensors& in) {
        ops::drop_entries(in[1], in[2]);
        return Tensors{recast(in[1], DType::f64)};
      },
      [](const Tensors& in) {
        for (int64_t i = 0; i < in[1].numel(); ++i) {
          const int64_t query = i / (in[1].dim(2) * in[1].dim(3));
          if (in[2].data<uint8_t>()[query] == 0) in[1].data<int32_t>()[i] = -1;
        }
        return Tensors{recast(in[1], DType::f64)};
      });
}

// The number of a stored type that is nearest to x, of two the even one; x is not beyond them.
double nearest_stored(DType stored, double x) {
  if (stored == DType::i8) return std::nearbyint(x);
  int best = 0;
  for (int bits = 0; bits < 0x7f; ++bits) {
    const auto off = [&](int candidate) {
      const double value = static_cast<float>(std::bit_cast<float8>(static_cast<uint8_t>(candidate)));
      return std::abs(std::abs(x) - value);
    };
    if (off(bits) < off(best) || (off(bits) == off(best) && bits % 2 == 0)) best = bits;
  }
  return std::copysign(static_cast<double>(static_cast<float>(std::bit_cast<float8>(static_cast<uint8_t>(best)))), x);
}

void add_quantize(std::vector<OpCase>& cases, RandomTensors& random, DType stored, int64_t vectors, int64_t width) {
  const double max_stored = stored == DType::i8 ? 127 : 448;
  const Tensor x = random.normal({vectors, width});
  for (int64_t d = 0; d < width; ++d) {
    double* const row = values(x) + d;
    row[0] = 0;
    if (vectors < 8) continue;
    row[width] = static_cast<float>(1e-39 * static_cast<double>(d));        // below the smallest normal number
    row[2 * width] = static_cast<double>(d % 255) - 127;                    // the scale is one
    row[3 * width] = static_cast<double>(d % 20) / 2 + (d == 0 ? 127 : 0);  // ties
    if (stored == DType::f8) {
      row[2 * width] = static_cast<double>(d * 16 % 448) + (d == 0 ? 448 : 0);
      // From the smallest ones on: halves of the last place.
      row[3 * width] = d == 0 ? 448 : std::ldexp(static_cast<double>(2 * d + 1), -10 + static_cast<int>(d % 13));
      row[3 * width] = std::min(row[3 * width], 448.0);
    }
    row[4 * width] = static_cast<float>(row[4 * width] * 1e36);
  }
  if (vectors >= 8) {
    values(x)[5 * width + width / 2] = std::nan("");
    values(x)[6 * width] = -kInfinity;
  }
  const std::string name = (stored == DType::i8 ? "" : "f8_") + std::to_string(vectors) + "x" + std::to_string(width);
  // Numbers a vector; NaN as scale is compared as what shown() gives.
  add_operation(
      cases, "quantize_vectors", name, {x}, 0,
      [=](const Tensors& in) {
        const Tensor out = recast(wide_beside(in[0], {vectors, width}), stored);
        const Tensor scale = recast(wide_beside(in[0], {vectors}), DType::bf16);
        ops::quantize_vectors(out, scale, in[0]);
        return Tensors{recast(out, DType::f64), shown(scale)};
      },
      [=](const Tensors& in) {
        const Tensor out = Tensor::zeros({vectors, width}, DType::f64);
        const Tensor scale = Tensor::zeros({vectors}, DType::f64);
        for (int64_t n = 0; n < vectors; ++n) {
          double largest = 0;
          bool finite = true;
          for (int64_t d = 0; d < width; ++d) {
            const double size = std::abs(values(in[0])[n * width + d]);
            finite = finite && std::isfinite(size);
            largest = std::max(largest, size);
          }
          values(scale)[n] = std::nan("");
          if (!finite) continue;
          // Every positive bf16 number in turn.
          for (uint16_t bits = 0; bits < 0x7f80; ++bits) {
            const double step = static_cast<float>(std::bit_cast<bfloat16>(bits));
            if (max_stored * step < largest) continue;
            values(scale)[n] = step;
            break;
          }
          for (int64_t d = 0; d < width && largest > 0; ++d) {
            const double quotient = values(in[0])[n * width + d] / values(scale)[n];
            values(out)[n * width + d] = nearest_stored(stored, quotient);
          }
        }
        return Tensors{out, shown(scale)};
      });
  add_in_place(
      cases, "dequantize_vectors", name,
      {stored == DType::i8 ? recast(random.integers({vectors, width}, -127, 128), DType::i8)
                           : recast(random.normal({vectors, width}, 100), DType::f8),
       converted(random.normal({vectors}, 0.1), DType::bf16), random.normal({vectors, width})},
      1, [](const Tensors& in) { ops::dequantize_vectors(in[2], in[0], recast(in[1], DType::bf16)); },
      [=](const Tensors& in) {
        const Tensor numbers = recast(in[0], DType::f64);
        for (int64_t i = 0; i < in[2].numel(); ++i) {
          values(in[2])[i] = values(numbers)[i] * values(recast(in[1], DType::f64))[i / width];
        }
      },
      {}, {2});
}

}  // namespace

void add_knn_gate_cases(std::vector<OpCase>& cases) {
  RandomTensors random(41);
  add_share(cases, random);
  add_drop(cases, random, {1, 1, 1, 1});
  add_drop(cases, random, {3, 7, 2, 5});
  for (const DType stored : {DType::i8, DType::f8}) {
    add_quantize(cases, random, stored, 1, 1);
    add_quantize(cases, random, stored, 9, 37);
    add_quantize(cases, random, stored, 67, 64);
  }
}

}  // namespace quire::test
