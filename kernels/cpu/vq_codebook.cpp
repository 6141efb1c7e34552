// Moving averages of a codebook and its codewords.
#include "kernels/cpu/common.h"
#include "kernels/vq_sizes.h"

namespace quire::cpu {

namespace {

void codebook_update(const Tensor& m, const Tensor& n, const Tensor& sums, const Tensor& counts, const Tensor& seeds,
                     const Tensor& present, const Tensor& control, const ops::CodebookUpdate& options) {
  check_codebook_update(m, n, sums, counts, seeds, present, control, options);
  if (control.data<double>()[1] == 0) return;
  const int64_t size = m.dim(2);
  dispatch("codebook_update", m.dtype(), [&](auto type) {
    using T = decltype(type);
    const T kept = static_cast<T>(options.decay);
    const T added = static_cast<T>(1 - options.decay);
    for_rows(n.numel(), size, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        T& count = n.data<T>()[s];
        ArrayView<T> sum(m.data<T>() + s * size, size);
        count = kept * count + added * counts.data<T>()[s];
        const bool is_reseeded = options.reseed_all || count < static_cast<T>(options.reseed);
        if (is_reseeded && present.defined() && present.data<T>()[s] != T{0}) {
          count = T{1};
          sum = ConstArrayView<T>(seeds.data<T>() + s * size, size);
        } else {
          sum = kept * sum + added * ConstArrayView<T>(sums.data<T>() + s * size, size);
        }
      }
    });
  });
}

void codewords(const Tensor& codebook, const Tensor& m, const Tensor& n, double floor, double smoothing) {
  check_codewords(codebook, m, n);
  const int64_t codes = m.dim(1);
  const int64_t size = m.dim(2);
  dispatch("codewords", m.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(m.dim(0), [&](int64_t head) {
      const T* count = n.data<T>() + head * codes;
      double total = 0;
      for (int64_t s = 0; s < codes; ++s) total += count[s];
      for (int64_t s = 0; s < codes; ++s) {
        double used = count[s];
        if (smoothing > 0) used = (used + smoothing) / (total + static_cast<double>(codes) * smoothing) * total;
        const int64_t at = (head * codes + s) * size;
        ArrayView<T>(codebook.data<T>() + at, size) =
            ConstArrayView<T>(m.data<T>() + at, size) / static_cast<T>(std::max(used, floor));
      }
    });
  });
}

}  // namespace

void bind_vq_codebook() {
  ops::codebook_update.bind(DeviceKind::cpu, codebook_update);
  ops::codewords.bind(DeviceKind::cpu, codewords);
}

}  // namespace quire::cpu
