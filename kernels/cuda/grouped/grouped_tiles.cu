#include "kernels/cuda/grouped/grouped_tiles.h"

#include "kernels/cuda/sort.h"

namespace quire::cuda {

namespace {

__device__ inline int tiles_of(const int32_t* range, int of_tile) {
  return range[1] > range[0] ? ceil_div(range[1] - range[0], of_tile) : 0;
}

// A block cuts one row. ranges [R, L, 2] gets the first query of each list and the one behind its last; tiles is [R,
// max_tiles, 3].
__global__ void cut_queries_kernel(int32_t* ranges, int32_t* tiles, const int32_t* list, int queries, int lists,
                                   int max_tiles, int of_tile) {
  __shared__ int counts[kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t* const numbers = list + static_cast<int64_t>(blockIdx.x) * queries;
  int32_t* const own_ranges = ranges + static_cast<int64_t>(blockIdx.x) * lists * 2;
  int32_t* const own_tiles = tiles + static_cast<int64_t>(blockIdx.x) * max_tiles * kListTileNumbers;
  for (int i = thread; i < 2 * lists; i += kBlock) own_ranges[i] = 0;
  __syncthreads();
  for (int t = thread; t < queries; t += kBlock) {
    const int number = numbers[t];
    if (number < 0 || number >= lists) continue;
    // When a list's queries are not consecutive, the last run of them counts, in whatever order threads come.
    if (t == 0 || numbers[t - 1] != number) atomicMax(&own_ranges[2 * number], t);
    if (t + 1 == queries || numbers[t + 1] != number) atomicMax(&own_ranges[2 * number + 1], t + 1);
  }
  __syncthreads();
  // A thread takes consecutive lists; their tiles come behind those of the threads before it.
  const int each = ceil_div(lists, kBlock);
  const int first = thread * each;
  const int last = first + each < lists ? first + each : lists;
  counts[thread] = 0;
  for (int l = first; l < last; ++l) counts[thread] += tiles_of(own_ranges + 2 * l, of_tile);
  __syncthreads();
  int at = 0;
  int all = 0;
  for (int i = 0; i < kBlock; ++i) {
    if (i == thread) at = all;
    all += counts[i];
  }
  for (int l = first; l < last; ++l) {
    const int end = own_ranges[2 * l + 1];
    for (int begin = own_ranges[2 * l]; begin < end && at < max_tiles; begin += of_tile, ++at) {
      int32_t* const to = own_tiles + at * kListTileNumbers;
      to[0] = l;
      to[1] = begin;
      to[2] = begin + of_tile < end ? of_tile : end - begin;
    }
  }
  for (int i = all + thread; i < max_tiles; i += kBlock) own_tiles[i * kListTileNumbers + 2] = 0;
}

// Numbers the entries for the sort. Entries without a chunk come behind all others.
__global__ void number_entries_kernel(int32_t* chunk, int32_t* entry, const int32_t* chosen, int64_t count,
                                      int32_t chunks) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    chunk[i] = chosen[i] >= 0 && chosen[i] < chunks ? chosen[i] : chunks;
    entry[i] = static_cast<int32_t>(i);
  }
}

}  // namespace

void cut_queries(const GroupedScratch& scratch, const Tensor& list, int of_tile) {
  launch(cut_queries_kernel, dim3(static_cast<unsigned>(list.dim(0))), kBlock, 0, scratch.ranges.data<int32_t>(),
         scratch.tiles.data<int32_t>(), list.data<int32_t>(), static_cast<int>(list.dim(1)),
         static_cast<int>(scratch.ranges.dim(1)), static_cast<int>(scratch.tiles.dim(1)), of_tile);
}

void sort_entries(const GroupedBackwardScratch& scratch, const ops::GroupedCrossAttentionInputs& in) {
  const int64_t count = in.chosen.numel();
  if (count == 0) return;
  const auto part = [&](int64_t n) { return scratch.entries.select(0, n); };
  const auto chunks = static_cast<int32_t>(in.keys.dim(0));
  launch(number_entries_kernel, blocks_for(count), kBlock, 0, part(2).data<int32_t>(), part(3).data<int32_t>(),
         in.chosen.data<int32_t>(), count, chunks);
  sort_pairs(part(0), part(1), part(2), part(3), bits_of(chunks));
}

}  // namespace quire::cuda
