#include "kernels/embedding.h"

#include <algorithm>

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
    T* const to = out.data<T>();
    const T* const from = table.data<T>();
    for_rows(ids.numel(), width, [=](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        ArrayView<W> row(widened_result(to + m * width, width, 0), width);
        if (id[m] < 0) {
          row.setZero();
        } else {
          row = static_cast<W>(scale) * ConstArrayView<W>(widened(from + id[m] * width, width, 1), width);
        }
        store_narrow(to + m * width, row.data(), width);
      }
    });
  });
}

void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& ids, double scale) {
  const int64_t width = dtable.dim(1);
  const int64_t count = ids.numel();
  check_embedding_backward(dtable, dout, ids);
  const int32_t* id = ids.data<int32_t>();
  std::vector<int32_t> order;  // the terms, by id and then by position
  order.reserve(static_cast<size_t>(count));
  for (int64_t m = 0; m < count; ++m) {
    if (id[m] >= 0) order.push_back(static_cast<int32_t>(m));
  }
  const auto by_id = [&](int32_t a, int32_t b) { return id[a] < id[b]; };
  if (!std::is_sorted(order.begin(), order.end(), by_id)) std::stable_sort(order.begin(), order.end(), by_id);
  // Tasks of all terms of some ids, with enough numbers for a thread.
  std::vector<size_t> tasks{0};
  for (size_t n = 1; n <= order.size(); ++n) {
    if (n < order.size() && id[order[n]] == id[order[n - 1]]) continue;
    if (n == order.size() || static_cast<int64_t>(n - tasks.back()) * width >= kElementTile) tasks.push_back(n);
  }
  dispatch_stored("embedding_backward", dout.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    W* const to = dtable.data<W>();
    const T* const from = dout.data<T>();
    parallel_for(static_cast<int64_t>(tasks.size()) - 1, [&](int64_t task) {
      for (size_t n = tasks[static_cast<size_t>(task)]; n < tasks[static_cast<size_t>(task) + 1]; ++n) {
        ArrayView<W> total(to + id[order[n]] * width, width);
        const W* const term = widened(from + order[n] * width, width, 0);
        total += static_cast<W>(scale) * ConstArrayView<W>(term, width);
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
