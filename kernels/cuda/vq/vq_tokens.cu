// Sorts tokens by codeword.
#include "kernels/cuda/sort.h"
#include "kernels/cuda/sorted.h"
#include "kernels/cuda/vq/vq_caches.h"
#include "kernels/vq_sizes.h"

namespace quire::cuda {

namespace {

// Numbers every token and slot by its codeword among those of all rows and heads; tokens without one get the number
// after the last.
__global__ void number_kernel(int32_t* keys, int32_t* positions, const int32_t* codes, const int32_t* window_codes,
                              const int32_t* window_head, CodedTokenSizes s, int64_t codewords) {
  const int64_t per_row = s.slots + s.tokens;
  for (int64_t i = first_element(); i < s.rows * per_row * s.kv_heads; i += element_stride()) {
    const int64_t head = i % s.kv_heads;
    const int64_t at = i / s.kv_heads % per_row;
    const int64_t row = i / s.kv_heads / per_row;
    const int64_t position = at - s.slots;
    int64_t code;
    if (position >= 0) {
      code = codes[(row * s.tokens + position) * s.kv_heads + head];
    } else {
      const int64_t slot = ((window_head[row] + position) % s.slots + s.slots) % s.slots;
      code = window_codes[(row * s.slots + slot) * s.kv_heads + head];
    }
    const bool enters = code >= 0 && code < codewords;
    keys[i] = static_cast<int32_t>((enters ? row * s.kv_heads + head : s.rows * s.kv_heads) * codewords +
                                   (enters ? code : 0));
    positions[i] = static_cast<int32_t>(at);
  }
}

// A thread finds the range of one codeword of a row, cache and head. Positions outside the ring and the tokens are not
// in the list.
__global__ void ranges_kernel(int32_t* ranges, const int32_t* keys, const int32_t* positions, int64_t listed,
                              const int32_t* origins, const int32_t* limits, CodedTokenSizes s, int64_t codewords) {
  const int64_t of_row = s.kv_heads * codewords;
  for (int64_t i = first_element(); i < s.rows * s.caches * of_row; i += element_stride()) {
    const int64_t row = i / (s.caches * of_row);
    const int64_t b = i / of_row % s.caches;
    const int64_t codeword = row * of_row + i % of_row;
    const int32_t* const origin = origins + row * s.caches;
    const int32_t* const limit = limits + row * s.caches;
    const int64_t begin = lower_bound(keys, 0, listed, codeword);
    const int64_t end = lower_bound(keys, begin, listed, codeword + 1);
    int64_t low = origin[b];
    if (!begins_anew(origin, b) && limit[b - 1] > low) low = limit[b - 1];
    const int64_t first = lower_bound(positions, begin, end, low + s.slots);
    const int64_t last = lower_bound(positions, first, end, limit[b] + s.slots);
    ranges[2 * i] = static_cast<int32_t>(first);
    ranges[2 * i + 1] = static_cast<int32_t>(last);
  }
}

void sort_by_code(const ops::TokensByCode& to, const ops::CodedTokens& in) {
  const CodedTokenSizes s(in);
  const int64_t codes = to.ranges.dim(3);
  check_tokens_by_code(s, codes, to);
  const int64_t listed = to.positions.numel();
  if (listed == 0) return to.ranges.zero();
  const Tensor numbered = Tensor::empty({3, listed}, DType::i32, in.codes.device());
  const Tensor codewords = numbered.select(0, 0);
  const Tensor positions = numbered.select(0, 1);
  const Tensor sorted = numbered.select(0, 2);
  launch(number_kernel, blocks_for(listed), kBlock, 0, codewords.data<int32_t>(), positions.data<int32_t>(),
         in.codes.data<int32_t>(), data_or_null<int32_t>(in.window_codes), data_or_null<int32_t>(in.window_head), s,
         codes);
  sort_pairs(sorted, to.positions, codewords, positions, bits_of(s.rows * s.kv_heads * codes));
  launch(ranges_kernel, blocks_for(to.ranges.numel() / 2), kBlock, 0, to.ranges.data<int32_t>(), sorted.data<int32_t>(),
         to.positions.data<int32_t>(), listed, in.origin.data<int32_t>(), in.limit.data<int32_t>(), s, codes);
}

}  // namespace

void bind_vq_tokens() {
  ops::sort_by_code.bind(DeviceKind::cuda, sort_by_code);
}

}  // namespace quire::cuda
