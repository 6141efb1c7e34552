// Searches the memory on tensor cores: in place, or piece by piece where it lies in host memory.
#include "kernels/cuda/knn/knn_mma.h"

namespace quire::cuda {

namespace {

template <typename S>
void search_stored(const MmaSearch<S>& in, const SearchScratch& scratch, bool bucketed) {
  bucketed ? search_buckets(in, scratch) : search_exactly(in, scratch);
}

// Adds copies of slots [first, first + count) of each row.
void add_copies(std::vector<DeviceBackend::Copy>& copies, const Tensor& to, const Tensor& from, int64_t first,
                int64_t count) {
  if (!from.defined()) return;
  const int64_t slot = from.bytes() / from.dim(0) / from.dim(1);
  for (int64_t row = 0; row < from.dim(0); ++row) {
    copies.push_back({static_cast<char*>(to.raw()) + row * to.dim(1) * slot,
                      static_cast<const char*>(from.raw()) + (row * from.dim(1) + first) * slot,
                      static_cast<size_t>(count * slot)});
  }
}

// Copies pieces alternately into two buffers: the copy of a piece begins when the search of the piece before the
// current one has ended, and runs beside the current search.
template <typename S>
void search_pieces(MmaSearch<S> in, const SearchScratch& scratch, const ops::KnnMemory& memory, bool bucketed) {
  DeviceBackend& backend = device_backend(DeviceKind::cuda);
  const int64_t slots = memory.keys.dim(1);
  const auto fetch = [&](int64_t first) {
    const int64_t n = first / scratch.piece % 2;
    const int64_t count = slots - first < scratch.piece ? slots - first : scratch.piece;
    std::vector<DeviceBackend::Copy> copies;
    add_copies(copies, scratch.keys[n], memory.keys, first, count);
    add_copies(copies, scratch.key_scale[n], memory.key_scale, first, count);
    backend.fetch(copies);
  };
  in.is_piece = true;
  fetch(0);
  for (int64_t first = 0; first < slots; first += scratch.piece) {
    backend.await_fetched();
    if (first + scratch.piece < slots) fetch(first + scratch.piece);
    const int64_t n = first / scratch.piece % 2;
    in.keys = scratch.keys[n].data<S>();
    in.scale = data_or_null<bfloat16>(scratch.key_scale[n]);
    in.stored = static_cast<int>(scratch.keys[n].dim(1));
    in.first_slot = static_cast<int>(first);
    in.is_next = first > 0;
    search_stored(in, scratch, bucketed);
  }
}

}  // namespace

void search_on_tensor_cores(const SearchScratch& scratch, int32_t* index, float* score, const Tensor& q,
                            const ops::KnnMemory& memory, const KnnSizes& s, bool bucketed) {
  const auto run = [&](auto stored) {
    using S = decltype(stored);
    MmaSearch<S> in{};
    in.q = q.data<bfloat16>();
    in.keys = memory.keys.data<S>();
    in.scale = data_or_null<bfloat16>(memory.key_scale);
    in.head = memory.head.data<int32_t>();
    in.length = memory.length.data<int32_t>();
    in.index = index;
    in.score = score;
    if (!scratch.shared) {
      in.best_score = scratch.best_score.data<float>();
      in.best_entry = scratch.best_entry.data<int32_t>();
    }
    in.rows = static_cast<int>(s.rows);
    in.queries = static_cast<int>(s.queries);
    in.heads = static_cast<int>(s.heads);
    in.kv_heads = static_cast<int>(s.kv_heads);
    in.size = static_cast<int>(s.size);
    in.top_k = static_cast<int>(s.top_k);
    in.tiles = static_cast<int>(scratch.tiles);
    in.parts = static_cast<int>(scratch.parts);
    in.slots = in.stored = static_cast<int>(s.slots);
    if (scratch.piece > 0 && s.slots > 0) return search_pieces(in, scratch, memory, bucketed);
    search_stored(in, scratch, bucketed);
  };
  switch (memory.keys.dtype()) {
    case DType::i8:
      return run(int8_t{});
    case DType::f8:
      return run(float8{});
    default:
      return run(bfloat16{});
  }
}

}  // namespace quire::cuda
