#include "kernels/cuda/blocks/block_tiles.h"

#include <limits>

namespace quire::cuda {

namespace {

// Says where blocks end, with one bit per key. The cut into tiles follows from these bits alone, one tile after the
// other.
struct BlockEnds {
  static constexpr int kBeyond = 2;  // words without a bit set, behind the others
  unsigned* words;                   // bit n: a block ends with key n

  // Returns the key behind the last end among 64 keys from `begin` on, or `begin` when no block ends there.
  __device__ int last_of_tile(int begin) const {
    const unsigned* const at = words + begin / kWarp;
    const int shift = begin % kWarp;
    int end = begin;
    for (int half = 0; half < kTile / kWarp; ++half) {
      const unsigned bits = shift == 0 ? at[half] : at[half] >> shift | at[half + 1] << (kWarp - shift);
      if (bits != 0) end = begin + (half + 1) * kWarp - __clz(static_cast<int>(bits));
    }
    return end;
  }
  // Returns the key behind the first end after 64 keys from `begin` on. There must be one.
  __device__ int first_behind_tile(int begin) const {
    int word = (begin + kTile) / kWarp;
    unsigned bits = words[word] >> (begin % kWarp) << (begin % kWarp);
    while (bits == 0) bits = words[++word];
    return word * kWarp + __ffs(static_cast<int>(bits));
  }
};

// A block cuts one row. One thread cuts it into tiles; a warp each then finds the numbers of the blocks in a tile.
__global__ void cut_blocks_kernel(KeyTile* tiles, const int32_t* block, int keys, int max_tiles) {
  __shared__ int counted;
  const BlockEnds ends{dynamic_shared<unsigned>()};
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  constexpr int kWarps = kBlock / kWarp;
  const int lane = lane_of_warp();
  const int32_t* const numbers = block + static_cast<int64_t>(blockIdx.x) * keys;
  KeyTile* const to = tiles + static_cast<int64_t>(blockIdx.x) * max_tiles;
  for (int word = warp; word < ceil_div(keys, kWarp) + BlockEnds::kBeyond; word += kWarps) {
    const int key = word * kWarp + lane;
    const bool is_last = key < keys && (key + 1 == keys || numbers[key + 1] != numbers[key]);
    const unsigned bits = __ballot_sync(kAllLanes, is_last);
    if (lane == 0) ends.words[word] = bits;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int count = 0;
    int long_blocks = 0;
    for (int begin = 0; begin < keys && count < max_tiles;) {
      int end = ends.last_of_tile(begin);
      if (end > begin) {
        to[count++] = {begin, end, begin, end, 0, 0, 0};
      } else {
        end = ends.first_behind_tile(begin);
        for (int from = begin; from < end && count < max_tiles; from += kTile) {
          to[count++] = {from, from + kTile < end ? from + kTile : end, begin, end, 0, 0, long_blocks};
        }
        ++long_blocks;
      }
      begin = end;
    }
    counted = count;
  }
  __syncthreads();
  for (int n = warp; n < counted; n += kWarps) {
    const KeyTile tile = to[n];
    // Keys without a block may stand before and behind the others.
    int low = std::numeric_limits<int>::max();
    int high = -1;
    for (int key = tile.begin + lane; key < tile.end; key += kWarp) {
      if (numbers[key] >= 0 && numbers[key] < low) low = numbers[key];
      if (numbers[key] > high) high = numbers[key];
    }
    low = -warp_max(-low);
    high = warp_max(high);
    if (lane != 0) continue;
    to[n].low = tile.is_part() ? numbers[tile.begin] : low;
    to[n].high = tile.is_part() ? numbers[tile.begin] : high;
  }
  for (int n = counted + static_cast<int>(threadIdx.x); n < max_tiles; n += kBlock) to[n].begin = keys;
}

}  // namespace

void cut_blocks(const Tensor& tiles, const Tensor& block) {
  const auto keys = static_cast<int>(block.dim(1));
  const size_t bits = sizeof(unsigned) * static_cast<size_t>(ceil_div(keys, kWarp) + BlockEnds::kBeyond);
  launch(cut_blocks_kernel, dim3(static_cast<unsigned>(block.dim(0))), kBlock, bits, static_cast<KeyTile*>(tiles.raw()),
         block.data<int32_t>(), keys, static_cast<int>(tiles.dim(1)));
}

}  // namespace quire::cuda
