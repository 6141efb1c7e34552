#include "kernels/embedding.h"

#include <numeric>

#include "kernels/checks.h"
#include "kernels/cpu/common.h"

namespace quire::cpu {

namespace {

void embedding(const Tensor& out, const Tensor& table, const Tensor& ids, double scale) {
  const int64_t width = table.dim(1);
  const int64_t vocabulary = table.dim(0);
  check_embedding(out, table, ids);
  const int32_t* id = ids.data<int32_t>();
  for (int64_t m = 0; m < ids.numel(); ++m) {
    if (id[m] >= vocabulary) {
      fail(ErrorKind::data, "embedding: token id {} is outside the vocabulary of {}", id[m], vocabulary);
    }
  }
  dispatch_stored("embedding", table.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    for_rows(ids.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        ArrayView<W> row(widened_result(out.data<T>() + m * width, width, 0), width);
        if (id[m] < 0) {
          row.setZero();
        } else {
          row = static_cast<W>(scale) * ConstArrayView<W>(widened(table.data<T>() + id[m] * width, width, 1), width);
        }
        store_narrow(out.data<T>() + m * width, row.data(), width);
      }
    });
  });
}

void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& ids, double scale) {
  const int64_t width = dtable.dim(1);
  const int64_t count = ids.numel();
  check_embedding_backward(dtable, dout, ids);
  const int32_t* id = ids.data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return id[a] < id[b]; });
  std::vector<int64_t> runs;  // the indices where a new id begins
  for (int64_t m = 0; m < count; ++m) {
    if (id[order[static_cast<size_t>(m)]] < 0) continue;
    if (runs.empty() || id[order[static_cast<size_t>(m)]] != id[order[static_cast<size_t>(m - 1)]]) runs.push_back(m);
  }
  runs.push_back(count);
  dispatch_stored("embedding_backward", dout.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    parallel_for(static_cast<int64_t>(runs.size()) - 1, [&](int64_t run) {
      const int64_t begin = runs[static_cast<size_t>(run)];
      const int64_t row = id[order[static_cast<size_t>(begin)]];
      ArrayView<W> total(dtable.data<W>() + row * width, width);
      for (int64_t m = begin; m < runs[static_cast<size_t>(run) + 1]; ++m) {
        const T* const term = dout.data<T>() + order[static_cast<size_t>(m)] * width;
        total += static_cast<W>(scale) * ConstArrayView<W>(widened(term, width, 0), width);
      }
    });
  });
}

}  // namespace

void bind_embedding() {
  ops::embedding.bind(DeviceKind::cpu, embedding);
  ops::embedding_backward.bind(DeviceKind::cpu, embedding_backward);
}

}  // namespace quire::cpu
