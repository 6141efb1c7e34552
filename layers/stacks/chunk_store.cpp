#include "layers/stacks/chunk_store.h"

#include <algorithm>

#include "autograd/functions/views.h"

namespace quire {

ChunkStore::ChunkStore(const Scope& scope, const ChunkStoreOptions& options) : name_(scope.path()), options_(options) {
  tail_ = scope.state_logs("tail", std::max<int64_t>(1, options.positions - 1));
  states_ = scope.state_log(tail_, "states", {options.width});
  // The newest chunk is never read by the list that its own landmark makes, so one more is kept.
  const int64_t length = options.capacity + 1;
  chunks_ = scope.state_logs("chunks", length, {.grain = options.positions, .place = options.place, .waits = true});
  const Shape entry{options.positions - 1, options.key_heads, options.head_size};
  keys_ = scope.state_log(chunks_, "keys", entry, options.dtype);
  values_ = scope.state_log(chunks_, "values", entry, options.dtype);
  index_ = scope.state_logs("index", length, {.grain = options.positions, .waits = true});
  landmarks_ = scope.state_log(index_, "landmarks", {options.width});
  for (int64_t group = 0; group < options.groups; ++group) {
    const Scope of_group = scope.child("groups", group);
    ages_.push_back(of_group.state_register("ages", {options.top_k}, {.dtype = DType::i32}));
    weights_.push_back(of_group.state_register("weights", {options.top_k}, {.wide = true}));
  }
}

Variable ChunkStore::behind_tails(const Forward& f, const CarriedBlocks& carried, const Variable& x) const {
  if (carried.max_tail == 0) return x;
  const std::vector<int64_t> lengths = f.state.lengths(tail_);
  std::vector<int64_t> first;
  for (size_t row = 0; row < lengths.size(); ++row) first.push_back(lengths[row] - carried.tail[row]);
  const Tensor tail = f.state.gather(states_, carried.max_tail, first, carried.tail);
  return concatenate(f.tape, std::vector{Variable::constant(tail), x}, 1);
}

Tensor ChunkStore::landmarks(const StateView& state, const CarriedBlocks& carried, int64_t first, int64_t last) const {
  std::vector<int64_t> from, count;
  for (const int64_t length : carried.length) {
    const int64_t oldest = carried.max_length - length;  // candidates before it do not exist in this row
    from.push_back(std::max<int64_t>(0, first - oldest));
    count.push_back(std::max<int64_t>(0, last - std::max(first, oldest)));
  }
  return state.gather(landmarks_, last - first, from, count);
}

Tensor ChunkStore::all_landmarks(const StateView& state) const {
  const Tensor ring = state.stored_ring(landmarks_);
  return ring.reshape({ring.dim(0) * ring.dim(1), ring.dim(2)});
}

void ChunkStore::forget_pages(const StateView& state) const {
  if (options_.place != LogPlace::file) return;
  state.forget_pages(keys_);
  state.forget_pages(values_);
}

Tensor ChunkStore::ages(const StateView& state, int64_t group) const {
  return state.current(ages_[static_cast<size_t>(group)]);
}

Tensor ChunkStore::weights(const StateView& state, int64_t group) const {
  return state.current(weights_[static_cast<size_t>(group)]);
}

void ChunkStore::write(const Forward& f, const ChunkCut& cut, const Tensor& x, const Tensor& landmarks,
                       const Tensor& keys, const Tensor& values) const {
  f.state.append(states_, x);
  std::vector<int64_t> first;
  for (size_t row = 0; row < cut.whole.size(); ++row) {
    first.push_back(static_cast<int64_t>(cut.whole[row].size()) - cut.of_last[row]);
  }
  // Rows that add nothing are told of as well: a document that begins in them ends what they hold.
  const int64_t rows = f.batch.rows, max_new = std::max<int64_t>(cut.max_chunks, 1);
  const auto by_chunk = [&](LogId log, const Tensor& all, const Shape& shape) {
    const Tensor given = cut.max_chunks > 0 ? all.reshape(shape) : Tensor::zeros(shape, x.dtype(), x.device());
    f.state.append(log, given, first, cut.of_last);
  };
  const Shape entries{rows, max_new, options_.positions - 1, options_.key_heads, options_.head_size};
  by_chunk(keys_, keys, entries);
  by_chunk(values_, values, entries);
  by_chunk(landmarks_, landmarks, {rows, max_new, options_.width});
}

void ChunkStore::write_lists(const Forward& f, const ChunkCut& cut, int64_t group, const Tensor& ages,
                             const Tensor& weights) const {
  const auto put = [&](RegisterId id, const Tensor& lists) {
    const Tensor next = Tensor::zeros({f.batch.rows, options_.top_k}, lists.dtype(), lists.device());
    std::vector<uint8_t> written;
    for (int64_t row = 0; row < f.batch.rows; ++row) {
      const bool chose = cut.of_last[static_cast<size_t>(row)] > 0;
      // Lists in the order of the row's chunks stand behind the one that the pass began with.
      const auto last = static_cast<int64_t>(cut.whole[static_cast<size_t>(row)].size());
      if (chose) next.select(0, row).copy_from(lists.select(0, row).select(0, last));
      written.push_back(chose ? 1 : 0);
    }
    f.state.put(id, next, written);
  };
  put(ages_[static_cast<size_t>(group)], ages);
  put(weights_[static_cast<size_t>(group)], weights);
}

}  // namespace quire
