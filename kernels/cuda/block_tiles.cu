#include "kernels/cuda/block_tiles.h"

#include <limits>

namespace quire::cuda {

namespace {

// A warp a row.
__global__ void cut_blocks_kernel(KeyTile* tiles, const int32_t* block, int keys, int most) {
  const int lane = static_cast<int>(threadIdx.x);
  const int32_t* const numbers = block + static_cast<int64_t>(blockIdx.x) * keys;
  KeyTile* const to = tiles + static_cast<int64_t>(blockIdx.x) * most;
  int count = 0;
  int long_blocks = 0;
  // Whether a block ends before this key.
  const auto ends_before = [&](int key) { return key == keys || (key < keys && numbers[key] != numbers[key - 1]); };
  for (int begin = 0; begin < keys && count < most;) {
    int end = begin;
    for (int half = 0; half < kTile / kWarp; ++half) {
      const int first = begin + 1 + half * kWarp;
      const unsigned ends = __ballot_sync(kAllLanes, ends_before(first + lane));
      if (ends != 0) end = first + kWarp - 1 - __clz(static_cast<int>(ends));
    }
    if (end > begin) {
      // Keys without a block may stand before and behind the others.
      int low = std::numeric_limits<int>::max();
      int high = -1;
      for (int key = begin + lane; key < end; key += kWarp) {
        if (numbers[key] >= 0 && numbers[key] < low) low = numbers[key];
        if (numbers[key] > high) high = numbers[key];
      }
      low = -warp_max(-low);
      high = warp_max(high);
      if (lane == 0) to[count] = {begin, end, begin, end, low, high, 0};
      ++count;
    } else {
      for (int first = begin + 1 + kTile; end == begin; first += kWarp) {
        const unsigned ends = __ballot_sync(kAllLanes, ends_before(first + lane));
        if (ends != 0) end = first + __ffs(static_cast<int>(ends)) - 1;
      }
      const int parts = ceil_div(end - begin, kTile);
      for (int part = lane; part < parts && count + part < most; part += kWarp) {
        const int from = begin + part * kTile;
        to[count + part] = {
            from, from + kTile < end ? from + kTile : end, begin, end, numbers[begin], numbers[begin], long_blocks};
      }
      count += parts;
      ++long_blocks;
    }
    begin = end;
  }
  for (int n = count + lane; n < most; n += kWarp) to[n].begin = keys;
}

}  // namespace

void cut_blocks(const Tensor& tiles, const Tensor& block) {
  launch(cut_blocks_kernel, dim3(static_cast<unsigned>(block.dim(0))), kWarp, 0, static_cast<KeyTile*>(tiles.raw()),
         block.data<int32_t>(), static_cast<int>(block.dim(1)), static_cast<int>(tiles.dim(1)));
}

}  // namespace quire::cuda
