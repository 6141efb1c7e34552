// Retrieval: which entries each query of the kNN memory reads.
#include <algorithm>

#include "core/check.h"
#include "layers/memory/knn.h"
#include "layers/pass/visibility.h"

namespace quire {

std::vector<int32_t> KnnMemory::readable(const StateView& state) const {
  std::vector<int32_t> readable;
  for (int64_t row = 0; row < state.rows(); ++row) {
    int64_t entries = state.lengths(entries_)[static_cast<size_t>(row)];
    // The oldest are those made longest ago.
    if (config_.stale.keep) entries = std::min(entries, state.entries_within(entries_, row, *config_.stale.keep));
    readable.push_back(static_cast<int32_t>(entries < config_.least ? 0 : entries));
  }
  return readable;
}

ops::KnnMemory KnnMemory::view(const StateView& state) const {
  ops::KnnMemory memory;
  memory.keys = state.stored_ring(keys_.log);
  memory.values = state.stored_ring(values_.log);
  if (keys_.scale.defined()) {
    memory.key_scale = state.stored_ring(keys_.scale);
    memory.value_scale = state.stored_ring(values_.scale);
  }
  memory.in_host_memory = state.place(entries_) == LogPlace::host;
  memory.head = state.ring_head(entries_);
  memory.length = Tensor::from(readable(state), {state.rows()}, memory.keys.device());
  return memory;
}

void KnnMemory::select_inverted(const StateView& state, const Selected& to, const Tensor& q) const {
  const Tensor& index = to.index;
  const ops::KnnMemory memory = view(state);
  const int64_t tokens = q.dim(1);
  const int64_t top_k = index.dim(3);
  const int64_t group = mixer_.heads / mixer_.key_heads;
  const std::vector<int32_t> length = readable(state);
  std::vector<float> queries(static_cast<size_t>(tokens * group * mixer_.head_size));
  std::vector<int32_t> found(static_cast<size_t>(tokens * group * top_k));
  std::vector<float> scores(found.size());
  for (int64_t row = 0; row < state.rows(); ++row) {
    if (length[static_cast<size_t>(row)] == 0) {
      const Tensor none = index.select(0, row);
      std::fill_n(none.data<int32_t>(), none.numel(), -1);
      continue;
    }
    const int64_t written = state.written(entries_, row);
    for (int64_t key_head = 0; key_head < mixer_.key_heads; ++key_head) {
      KnnIndex& lists = state.derived(inverted_, row).of_heads[static_cast<size_t>(key_head)];
      lists.update(written, read_entries(memory, row, key_head, written));
      if (!lists.is_ready()) break;  // all heads learn at the same time: until then the search was exact
      // Queries of the heads that read this key head, [T * group, D].
      const auto place = [&](int64_t t, int64_t g) { return (row * tokens + t) * mixer_.heads + key_head * group + g; };
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t g = 0; g < group; ++g) {
          std::copy_n(q.data<float>() + place(t, g) * mixer_.head_size, mixer_.head_size,
                      queries.begin() + (t * group + g) * mixer_.head_size);
        }
      }
      lists.search(found.data(), scores.data(), queries.data(), tokens * group, top_k, config_.inverted.probes,
                   read_entries(memory, row, key_head, written));
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t g = 0; g < group; ++g) {
          std::copy_n(found.begin() + (t * group + g) * top_k, top_k, index.data<int32_t>() + place(t, g) * top_k);
          std::copy_n(scores.begin() + (t * group + g) * top_k, top_k, to.score.data<float>() + place(t, g) * top_k);
        }
      }
    }
  }
}

double KnnMemory::recall_of(const StateView& state, const Tensor& q, const Tensor& index) const {
  const int64_t queries = std::min<int64_t>(64, q.dim(1));
  const Shape shape{1, queries, q.dim(2), q.dim(3)};
  const Tensor sample = q.select(0, 0).slice(0, 0, queries).reshape(shape);
  const Tensor exact = Tensor::empty({1, queries, index.dim(2), index.dim(3)}, DType::i32, q.device());
  const Tensor score = Tensor::empty(exact.shape(), wide_type(q.dtype()), q.device());
  ops::knn_search(exact, score, sample, view(state.block(0, 1)), ops::KnnSearch::exact);
  const std::vector<int32_t> expected = exact.to_vector<int32_t>();
  const std::vector<int32_t> found = index.select(0, 0).slice(0, 0, queries).to_vector<int32_t>();
  return recall(found.data(), expected.data(), queries * index.dim(2), index.dim(3));
}

KnnMemory::Selected KnnMemory::select(const Forward& f, const Tensor& q) const {
  Tensor score;  // stays undefined in the second pass of a recomputation
  const Tensor index = f.selection(scope_, [&] {
    const Selected found = search(f, q);
    score = found.score;
    return found.index;
  });
  return {index, score};
}

KnnMemory::Selected KnnMemory::search(const Forward& f, const Tensor& q) const {
  const Device device = q.device();
  const Shape shape{q.dim(0), q.dim(1), q.dim(2), std::min(config_.top_k, config_.carry.length)};
  const Tensor index = Tensor::empty(shape, DType::i32, device);
  const Tensor score = Tensor::empty(shape, wide_type(q.dtype()), device);
  // Planning only counts.
  const bool inverted = config_.search == KnnSearchKind::inverted && device.kind != DeviceKind::meta;
  if (inverted && (q.dtype() != DType::f32 || !(device == kCpu))) {
    fail(ErrorKind::config, "{}: search: inverted works on the CPU in f32; use run.precision: f32 or search: exact",
         name_);
  }
  const ops::KnnSearch how =
      config_.search == KnnSearchKind::bucketed ? ops::KnnSearch::bucketed : ops::KnnSearch::exact;
  // A file is read row by row, so that no more of it than one row's memory is in main memory at once.
  const int64_t step = config_.carry.place == LogPlace::file || inverted ? 1 : q.dim(0);
  // Rows whose groups are not learned yet are searched exactly.
  const auto learned = [&](int64_t row) {
    return inverted && f.state.written(entries_, row) >= config_.inverted.period;
  };
  for (int64_t row = 0; row < q.dim(0); row += step) {
    const StateView state = f.state.block(row, row + step);
    if (learned(row)) continue;
    ops::knn_search(index.slice(0, row, row + step), score.slice(0, row, row + step), q.slice(0, row, row + step),
                    view(state), how);
    state.forget_pages(keys_.log);
  }
  if (inverted) select_inverted(f.state, {index, score}, q);
  if (f.wants_telemetry() && config_.search != KnnSearchKind::exact) {
    f.add_telemetry(name_ + ".recall", recall_of(f.state, q, index));
  }
  if (const Tensor readers = carried_mask(f); readers.defined()) ops::drop_entries(index, readers);
  return {index, score};
}

}  // namespace quire
