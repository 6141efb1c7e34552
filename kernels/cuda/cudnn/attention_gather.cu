#include "kernels/cuda/cudnn/attention_gather.h"

#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

// An entry is the data of all heads at one position.
template <typename Function>
void with_unit(std::initializer_list<const Tensor*> tensors, int64_t entry_bytes, Function&& function) {
  bool wide = entry_bytes % static_cast<int64_t>(kVectorBytes) == 0;
  size_t size = 0;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    wide = wide && are_aligned({tensor->raw()});
    size = size_of(tensor->dtype());
  }
  if (wide) return function(Pack<uint32_t, 4>{});
  switch (size) {
    case 8:
      return function(uint64_t{});
    case 4:
      return function(uint32_t{});
    default:
      return function(uint16_t{});
  }
}

int64_t bytes_of_entry(const Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.bytes() / (tensor.dim(0) * tensor.dim(1));
}

template <typename Unit>
Unit* units_or_null(const Tensor& tensor) {
  return tensor.defined() ? static_cast<Unit*>(tensor.raw()) : nullptr;
}

dim3 block_an_entry(int64_t rows, int64_t entries) {
  return dim3(static_cast<unsigned>(rows * entries));
}

__global__ void line_lengths_kernel(int32_t* query_lengths, int32_t* key_lengths, const int32_t* first_visible,
                                    int rows, int queries, int max_carried) {
  for (int64_t row = first_element(); row < rows; row += element_stride()) {
    const int first = first_visible[row * queries];
    const int carried = first >= 0 ? 0 : (first < -max_carried ? max_carried : -first);
    query_lengths[row] = queries;
    key_lengths[row] = queries + carried;
  }
}

// Returns the slot of a ring for a position before the segment: -1 is the newest.
__device__ inline int64_t slot_at(int64_t head, int64_t position, int64_t slots) {
  const int64_t slot = (head + position) % slots;
  return slot < 0 ? slot + slots : slot;
}

// `length` is that of a line.
template <typename Unit>
__global__ void gather_line_kernel(Unit* line, const Unit* segment, const Unit* ring, const int32_t* head,
                                   const int32_t* key_lengths, int64_t length, int64_t queries, int64_t slots,
                                   int64_t units) {
  const int64_t row = blockIdx.x / length;
  const int64_t j = blockIdx.x % length;
  const int64_t carried = key_lengths[row] - queries;
  Unit* const to = line + static_cast<int64_t>(blockIdx.x) * units;
  const Unit* from = nullptr;
  if (j < carried) {
    from = ring + (row * slots + slot_at(head[row], j - carried, slots)) * units;
  } else if (j < carried + queries) {
    from = segment + (row * queries + j - carried) * units;
  }
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) to[i] = from == nullptr ? Unit{} : from[i];
}

template <typename Unit>
__global__ void scatter_line_kernel(Unit* segment, Unit* ring, const Unit* line, const int32_t* head,
                                    const int32_t* key_lengths, int64_t length, int64_t queries, int64_t slots,
                                    int64_t units) {
  const int64_t row = blockIdx.x / (slots + queries);
  const int64_t position = static_cast<int64_t>(blockIdx.x) % (slots + queries) - slots;  // of the key
  const int64_t carried = key_lengths[row] - queries;
  Unit* to = nullptr;
  if (position < 0) {
    to = ring + (row * slots + slot_at(head[row], position, slots)) * units;
  } else if (segment != nullptr) {
    to = segment + (row * queries + position) * units;
  }
  if (to == nullptr) return;
  const bool in_line = position >= -carried;
  const Unit* const from = in_line ? line + (row * length + carried + position) * units : nullptr;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) to[i] = in_line ? from[i] : Unit{};
}

template <typename Unit>
__global__ void clear_unseeing_kernel(Unit* to, const Unit* from, const int32_t* first_visible, int64_t queries,
                                      int64_t units) {
  const int64_t query = blockIdx.x;
  const bool sees = first_visible[query] <= query % queries;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) {
    const int64_t at = query * units + i;
    to[at] = sees ? from[at] : Unit{};
  }
}

// Holds the number of elements of a position, in the order of CudnnSequenceTables::Offset.
struct PositionSizes {
  int64_t of[CudnnSequenceTables::kOffsets];
};

// A thread fills each place of a call, which has max_sequences sequences and the end of the last one. `length` is that
// of a line of keys.
__global__ void sequence_tables_kernel(int32_t* lengths, int64_t* offsets, const int32_t* sequences,
                                       const int32_t* key_lengths, PositionSizes sizes, int64_t count, int64_t calls,
                                       int64_t max_sequences, int64_t length_pitch, int64_t offset_pitch,
                                       int64_t queries, int64_t length) {
  constexpr int64_t kOffsets = CudnnSequenceTables::kOffsets;
  for (int64_t i = first_element(); i < calls * (max_sequences + 1); i += element_stride()) {
    const int64_t call = i / (max_sequences + 1);
    const int64_t place = i % (max_sequences + 1);
    // Places behind the last sequence get the offset of its end.
    const int64_t number = call * max_sequences + place;
    const bool is_sequence = place < max_sequences && number < count;
    const int64_t in_call = count - call * max_sequences < max_sequences ? count - call * max_sequences : max_sequences;
    const int32_t* const sequence =
        sequences + (is_sequence ? number : call * max_sequences + in_call - 1) * ops::kSequenceNumbers;
    const int64_t row = sequence[ops::kSequenceRow];
    const int64_t begin = sequence[ops::kSequenceBegin];
    const int64_t of_sequence = sequence[ops::kSequenceQueries];
    const int64_t of_row = key_lengths == nullptr ? 0 : key_lengths[row] - queries;  // carried keys
    const int64_t carried = begin == 0 ? of_row : 0;
    const int64_t query = row * queries + begin + (is_sequence ? 0 : of_sequence);
    const int64_t key = row * length + of_row + begin + (is_sequence ? -carried : of_sequence);
    if (place < max_sequences) {
      lengths[2 * call * length_pitch + place] = is_sequence ? of_sequence : 0;
      lengths[(2 * call + 1) * length_pitch + place] = is_sequence ? carried + of_sequence : 0;
    }
    for (int64_t o = 0; o < kOffsets; ++o) {
      const bool of_keys = o == CudnnSequenceTables::kOfK || o == CudnnSequenceTables::kOfV;
      offsets[(call * kOffsets + o) * offset_pitch + place] = (of_keys ? key : query) * sizes.of[o];
    }
  }
}

constexpr int kThreadsOfEntry = 4 * kWarp;

}  // namespace

void line_lengths(const Tensor& query_lengths, const Tensor& key_lengths, const Tensor& first_visible,
                  int64_t carried) {
  const int64_t rows = first_visible.dim(0);
  launch(line_lengths_kernel, blocks_for(rows), kBlock, 0, query_lengths.data<int32_t>(), key_lengths.data<int32_t>(),
         first_visible.data<int32_t>(), static_cast<int>(rows), static_cast<int>(first_visible.dim(1)),
         static_cast<int>(carried));
}

void gather_line(const Tensor& line, const Tensor& segment, const Tensor& ring, const Tensor& head,
                 const Tensor& key_lengths) {
  const int64_t entry = bytes_of_entry(line);
  if (entry == 0) return;
  with_unit({&line, &segment, &ring}, entry, [&](auto unit) {
    using Unit = decltype(unit);
    launch(gather_line_kernel<Unit>, block_an_entry(line.dim(0), line.dim(1)), kThreadsOfEntry, 0,
           static_cast<Unit*>(line.raw()), static_cast<const Unit*>(segment.raw()),
           static_cast<const Unit*>(ring.raw()), head.data<int32_t>(), key_lengths.data<int32_t>(), line.dim(1),
           segment.dim(1), ring.dim(1), entry / static_cast<int64_t>(sizeof(Unit)));
  });
}

void scatter_line(const Tensor& segment, const Tensor& ring, const Tensor& line, const Tensor& head,
                  const Tensor& key_lengths, int64_t queries) {
  const int64_t entry = bytes_of_entry(line);
  if (entry == 0 || (!segment.defined() && !ring.defined())) return;
  const int64_t slots = ring.defined() ? ring.dim(1) : 0;
  with_unit({&line, &segment, &ring}, entry, [&](auto unit) {
    using Unit = decltype(unit);
    launch(scatter_line_kernel<Unit>, block_an_entry(line.dim(0), slots + queries), kThreadsOfEntry, 0,
           units_or_null<Unit>(segment), units_or_null<Unit>(ring), static_cast<const Unit*>(line.raw()),
           head.data<int32_t>(), key_lengths.data<int32_t>(), line.dim(1), queries, slots,
           entry / static_cast<int64_t>(sizeof(Unit)));
  });
}

void sequence_tables(const CudnnSequenceTables& tables, const AttentionSizes& s, const Tensor& sequences,
                     const Tensor& key_lengths, int64_t carried) {
  if (tables.calls == 0) return;
  const PositionSizes sizes{
      {s.heads * s.size, s.kv_heads * s.size, s.kv_heads * s.value_size, s.heads * s.value_size, s.heads}};
  launch(sequence_tables_kernel, blocks_for(tables.calls * (s.rows + 1)), kBlock, 0, tables.lengths.data<int32_t>(),
         tables.offsets.data<int64_t>(), sequences.data<int32_t>(),
         key_lengths.defined() ? key_lengths.data<int32_t>() : nullptr, sizes, sequences.dim(0), tables.calls, s.rows,
         tables.lengths.dim(2), tables.offsets.dim(2), s.queries, carried + s.queries);
}

void clear_unseeing(const Tensor& to, const Tensor& from, const Tensor& first_visible) {
  const int64_t entry = bytes_of_entry(to);
  if (entry == 0) return;
  with_unit({&to, &from}, entry, [&](auto unit) {
    using Unit = decltype(unit);
    launch(clear_unseeing_kernel<Unit>, block_an_entry(to.dim(0), to.dim(1)), kThreadsOfEntry, 0,
           static_cast<Unit*>(to.raw()), static_cast<const Unit*>(from.raw()), first_visible.data<int32_t>(), to.dim(1),
           entry / static_cast<int64_t>(sizeof(Unit)));
  });
}

}  // namespace quire::cuda
