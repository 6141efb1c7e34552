// Token embedding. Gradients are summed by token, in order of position: positions are sorted by token and cut into
// chunks of equal length; a thread sums a few columns of a chunk, and the sums of a token that lies in several chunks
// are added afterwards, in order.
#include "kernels/embedding.h"

#include <limits>

#include "kernels/checks.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/sort.h"

namespace quire::cuda {

namespace {

// A warp copies the row of one token.
template <typename T, int kPack>
__global__ void embedding_kernel(T* out, const T* table, const int32_t* ids, Wide<T> scale, int64_t count,
                                 int64_t vocabulary, int64_t width, bool aligned) {
  const int64_t m = first_element() / kWarp;
  if (m >= count) return;
  const int64_t id = ids[m];
  const bool known = id >= 0 && id < vocabulary;
  const Wide<T> otherwise = id < 0 ? Wide<T>{0} : std::numeric_limits<Wide<T>>::quiet_NaN();
  for (int64_t e = static_cast<int64_t>(threadIdx.x % kWarp) * kPack; e < width; e += kWarp * kPack) {
    Pack<T, kPack> pack{};
    if (known) pack = load<kPack>(table + id * width + e, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      pack.value[k] = narrow<T>(known ? scale * wide(pack.value[k]) : otherwise);
    }
    store<kPack>(out + m * width + e, pack, aligned);
  }
}

void embedding(const Tensor& out, const Tensor& table, const Tensor& ids, double scale) {
  check_embedding(out, table, ids);
  const int64_t width = table.dim(1);
  const bool aligned = are_aligned({out.raw(), table.raw()});
  dispatch(table.dtype(), [&](auto type) {
    using T = decltype(type);
    with_pack<T>(width, [&](auto pack) {
      launch(embedding_kernel<T, decltype(pack)::value>,
             dim3(static_cast<unsigned>(ceil_div(ids.numel(), kBlock / kWarp))), kBlock, 0, out.data<T>(),
             table.data<T>(), ids.data<int32_t>(), scale, ids.numel(), table.dim(0), width, aligned);
    });
  });
}

// Numbers the tokens for the sort. Tokens that are not in the table get the number after the last one.
__global__ void number_kernel(int32_t* keys, int32_t* positions, const int32_t* ids, int64_t count,
                              int32_t vocabulary) {
  for (int64_t m = first_element(); m < count; m += element_stride()) {
    keys[m] = ids[m] >= 0 && ids[m] < vocabulary ? ids[m] : vocabulary;
    positions[m] = static_cast<int32_t>(m);
  }
}

constexpr int kChunk = 32;  // positions, in sorted order

// Describes a chunk in sorted order, and says whether the chunks around it share its first or last token.
struct Chunk {
  const int32_t* keys;
  int64_t begin;
  int64_t end;
  int64_t count;

  __device__ Chunk(const int32_t* sorted, int64_t index, int64_t all)
      : keys(sorted), begin(index * kChunk), end(begin + kChunk < all ? begin + kChunk : all), count(all) {}
  __device__ bool continues_before() const { return begin > 0 && keys[begin - 1] == keys[begin]; }
  __device__ bool continues_after() const { return end < count && keys[end] == keys[end - 1]; }
  __device__ bool is_one_token() const { return keys[begin] == keys[end - 1]; }
};

// Adds to dtable the sums of tokens that lie within the chunk. first [chunks, width] gets the sum of the token that
// began in an earlier chunk, last that of the token that begins here and continues behind it.
template <typename T, int kPack>
__global__ void sum_chunks_kernel(Wide<T>* dtable, Wide<T>* first, Wide<T>* last, const T* dout, const int32_t* keys,
                                  const int32_t* positions, Wide<T> scale, int64_t count, int64_t vocabulary,
                                  int64_t width, unsigned blocks_of_chunk, bool aligned) {
  using W = Wide<T>;
  const int64_t index = blockIdx.x / blocks_of_chunk;
  const int64_t e = (static_cast<int64_t>(blockIdx.x % blocks_of_chunk) * blockDim.x + threadIdx.x) * kPack;
  if (e >= width) return;
  const Chunk chunk(keys, index, count);
  bool began_before = chunk.continues_before();
  Pack<W, kPack> sum{};
  for (int64_t i = chunk.begin; i < chunk.end; ++i) {
    const int64_t token = keys[i];
    const Pack<T, kPack> term = load<kPack>(dout + positions[i] * width + e, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum.value[k] += wide(term.value[k]);
    if (i + 1 < chunk.end && keys[i + 1] == token) continue;
    const bool goes_on = i + 1 == chunk.end && chunk.continues_after();
    if (began_before || goes_on) {
      store<kPack>((began_before ? first : last) + index * width + e, sum, aligned);
    } else if (token < vocabulary) {
      W* const to = dtable + token * width + e;
      Pack<W, kPack> total = load<kPack>(to, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) total.value[k] += scale * sum.value[k];
      store<kPack>(to, total, aligned);
    }
    sum = {};
    began_before = false;
  }
}

// Adds up the sums of tokens that continue behind the chunk in which they begin.
template <typename W, int kPack>
__global__ void join_chunks_kernel(W* dtable, const W* first, const W* last, const int32_t* keys, W scale,
                                   int64_t count, int64_t vocabulary, int64_t width, unsigned blocks_of_chunk,
                                   bool aligned) {
  const int64_t index = blockIdx.x / blocks_of_chunk;
  const int64_t e = (static_cast<int64_t>(blockIdx.x % blocks_of_chunk) * blockDim.x + threadIdx.x) * kPack;
  const Chunk chunk(keys, index, count);
  const int64_t token = keys[chunk.end - 1];
  const bool begins_here = chunk.continues_after() && !(chunk.is_one_token() && chunk.continues_before());
  if (e >= width || token >= vocabulary || !begins_here) return;
  Pack<W, kPack> sum = load<kPack>(last + index * width + e, aligned);
#pragma unroll 4
  for (int64_t next = index + 1; next * kChunk < count && keys[next * kChunk] == token; ++next) {
    const Pack<W, kPack> term = load<kPack>(first + next * width + e, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum.value[k] += term.value[k];
  }
  W* const to = dtable + token * width + e;
  Pack<W, kPack> total = load<kPack>(to, aligned);
#pragma unroll
  for (int k = 0; k < kPack; ++k) total.value[k] += scale * sum.value[k];
  store<kPack>(to, total, aligned);
}

void embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& ids, double scale) {
  check_embedding_backward(dtable, dout, ids);
  const int64_t count = ids.numel();
  const int64_t vocabulary = dtable.dim(0);
  const int64_t width = dtable.dim(1);
  if (count == 0 || width == 0) return;
  const Device device = ids.device();
  const Tensor numbered = Tensor::empty({4, count}, DType::i32, device);
  const Tensor keys = numbered.select(0, 0);
  const Tensor positions = numbered.select(0, 1);
  const Tensor sorted_keys = numbered.select(0, 2);
  const Tensor sorted_positions = numbered.select(0, 3);
  launch(number_kernel, blocks_for(count), kBlock, 0, keys.data<int32_t>(), positions.data<int32_t>(),
         ids.data<int32_t>(), count, vocabulary);
  sort_pairs(sorted_keys, sorted_positions, keys, positions, bits_of(vocabulary));

  const int64_t chunks = ceil_div(count, kChunk);
  dispatch(dout.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    const Tensor first = Tensor::empty({chunks, width}, dtype_of<W>(), device);
    const Tensor last = Tensor::empty({chunks, width}, dtype_of<W>(), device);
    const bool aligned = are_aligned({dtable.raw(), dout.raw(), first.raw(), last.raw()});
    with_pack<T>(width, [&](auto pack) {
      constexpr int kPack = decltype(pack)::value;
      // The block has whole warps, no more than the width needs.
      const int64_t threads = ceil_div(ceil_div(width, kPack), kWarp) * kWarp;
      const int block = static_cast<int>(threads < kBlock ? threads : kBlock);
      const auto blocks_of_chunk = static_cast<unsigned>(ceil_div(width, int64_t{block} * kPack));
      const dim3 blocks(static_cast<unsigned>(chunks) * blocks_of_chunk);
      launch(sum_chunks_kernel<T, kPack>, blocks, block, 0, dtable.data<W>(), first.data<W>(), last.data<W>(),
             dout.data<T>(), sorted_keys.data<int32_t>(), sorted_positions.data<int32_t>(), scale, count, vocabulary,
             width, blocks_of_chunk, aligned);
      launch(join_chunks_kernel<W, kPack>, blocks, block, 0, dtable.data<W>(), first.data<W>(), last.data<W>(),
             sorted_keys.data<int32_t>(), scale, count, vocabulary, width, blocks_of_chunk, aligned);
    });
  });
}

}  // namespace

void bind_embedding() {
  ops::embedding.bind(DeviceKind::cuda, embedding);
  ops::embedding_backward.bind(DeviceKind::cuda, embedding_backward);
}

}  // namespace quire::cuda
