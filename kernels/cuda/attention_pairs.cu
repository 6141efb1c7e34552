#include "kernels/cuda/attention_pairs.h"

#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

constexpr int kLinesAtOnce = 4;  // of a block, a warp each

// A query of a piece.
struct PairLine {
  int matrix, row, query;
  int first_key;
  int64_t number;  // among all lines of the piece
  int64_t in_lse;  // its place in [R, H, T]
  Distances seen;
};

__device__ inline PairLine line_of_piece(const PairsOfPiece& p, int64_t number) {
  PairLine at{};
  at.number = number;
  at.matrix = static_cast<int>(number / p.lines);
  at.row = p.row + (p.by_rows ? at.matrix : 0);
  const int ahead = p.by_rows ? 0 : at.matrix * p.length;
  at.query = p.slab * p.length + ahead + static_cast<int>(number % p.lines);
  at.first_key = p.first_key + ahead;
  at.in_lse = (static_cast<int64_t>(at.row) * p.in.heads + p.head) * p.in.queries + at.query;
  at.seen = distances_of(p.in, at.row, at.query);
  return at;
}
__device__ inline bool is_seen(const PairLine& at, int distance) {
  return distance >= at.seen.nearest && distance <= at.seen.farthest;
}
__device__ inline int distance_of_key(const PairLine& at, int column) {
  return at.query - at.first_key - column;
}
__device__ inline int distance_in_ring(const PairsOfPiece& p, const PairLine& at, int column) {
  return at.query + p.ring - column;
}

// Calls visit(column, distance, its product) for the pairs of a line that are seen, lane by lane.
template <typename Visit>
__device__ inline void for_each_seen(const PairsOfPiece& p, const PairLine& at, Visit visit) {
  const auto visit_columns = [&](int columns, int origin, const float* products) {
    // Distances fall from `origin` at column 0 on.
    const int begin = origin > at.seen.farthest ? origin - at.seen.farthest : 0;
    const int last = origin - at.seen.nearest < columns - 1 ? origin - at.seen.nearest : columns - 1;
    for (int c = begin + lane_of_warp(); c <= last; c += kWarp) visit(origin - c, products[c]);
  };
  if (p.ring > 0) visit_columns(p.ring, distance_in_ring(p, at, 0), p.ring_logits + at.number * p.ring);
  visit_columns(p.keys, distance_of_key(at, 0), p.logits + at.number * p.stride);
}

// In powers of 2.
__device__ inline float logit_of(const PairsOfPiece& p, const PairLine& at, int distance, float product) {
  float sum = product;
  if (p.terms != nullptr && distance < p.terms_seen) {
    sum += p.terms[at.number * p.terms_stride + p.terms_seen - 1 - distance];
  }
  return (sum * p.in.scale + bias_of(p.in, {at.row, p.head, 0, 0}, distance)) * kLog2E;
}

// What dropout multiplies a probability by.
__device__ inline float kept_of(const PairsOfPiece& p, const PairLine& at, int distance) {
  if (!p.in.dropout) return 1;
  const auto element =
      static_cast<uint32_t>(static_cast<int64_t>(p.head) * p.in.distances + p.in.first_distance + distance);
  const auto bits = philox(p.in.key, p.in.scope, p.in.first_row + static_cast<uint32_t>(at.row),
                           static_cast<uint32_t>(at.query), element / 4);
  return of_group(bits, element % 4) >= p.in.threshold ? p.in.kept : 0;
}

// Calls store(column, distance) for all columns of a line.
template <typename Store>
__device__ inline void for_each_column(int columns, int origin, Store store) {
  for (int c = lane_of_warp(); c < columns; c += kWarp) store(c, origin - c);
}

__global__ void __launch_bounds__(kLinesAtOnce* kWarp) weights_kernel(PairsOfPiece p, StoredPairs to, float* lse) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kLinesAtOnce + warp_of_block();
  if (number >= static_cast<int64_t>(p.matrices) * p.lines) return;  // the whole warp
  const PairLine at = line_of_piece(p, number);
  float top = std::numeric_limits<float>::lowest();
  float sum = 0;
  for_each_seen(p, at, [&](int distance, float product) {
    const float logit = logit_of(p, at, distance, product);
    if (logit > top) {
      sum = sum * power_of_two(top - logit) + 1;
      top = logit;
    } else {
      sum += power_of_two(logit - top);
    }
  });
  const float largest = warp_max(top);
  sum = warp_sum(sum * power_of_two(top - largest));
  const bool empty = sum == 0;
  const float factor = empty ? 0.0F : 1.0F / sum;
  const auto store_columns = [&](bfloat16* line, int columns, int origin, const float* products) {
    for_each_column(columns, origin, [&](int c, int distance) {
      float weight = 0;
      if (is_seen(at, distance)) {
        weight = power_of_two(logit_of(p, at, distance, products[c]) - largest) * factor * kept_of(p, at, distance);
      }
      line[c] = narrow<bfloat16>(weight);
    });
  };
  const int64_t a = number % p.lines;
  if (p.ring > 0) {
    store_columns(to.ring + at.matrix * to.ring_matrix_step + a * p.ring, p.ring, distance_in_ring(p, at, 0),
                  p.ring_logits + number * p.ring);
  }
  store_columns(to.pairs + at.matrix * to.matrix_step + a * to.line_step, p.keys, distance_of_key(at, 0),
                p.logits + number * p.stride);
  if (lane_of_warp() == 0) {
    lse[at.in_lse] = empty ? -std::numeric_limits<float>::infinity() : (largest + log2f(sum)) * kLn2;
  }
}

__global__ void __launch_bounds__(kLinesAtOnce* kWarp) gradients_kernel(PairsOfPiece p, PairGradients to) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kLinesAtOnce + warp_of_block();
  if (number >= static_cast<int64_t>(p.matrices) * p.lines) return;  // the whole warp
  const PairLine at = line_of_piece(p, number);
  const float log_sum = to.lse[at.in_lse] * kLog2E;
  const float delta = to.delta[at.in_lse];
  const bool empty = log_sum == -std::numeric_limits<float>::infinity();
  const auto store_columns = [&](bfloat16* weights, bfloat16* gradients, int columns, int origin, const float* logits,
                                 const float* products) {
    for_each_column(columns, origin, [&](int c, int distance) {
      float weight = 0;
      float gradient = 0;
      if (!empty && is_seen(at, distance)) {
        const float probability = power_of_two(logit_of(p, at, distance, logits[c]) - log_sum);
        const float kept = kept_of(p, at, distance);
        weight = probability * kept;
        gradient = p.in.scale * probability * (kept * products[c] - delta);
      }
      if (weights != nullptr) weights[c] = narrow<bfloat16>(weight);
      gradients[c] = narrow<bfloat16>(gradient);
    });
  };
  const int64_t a = number % p.lines;
  const auto line_of = [&](const StoredPairs& pairs) {
    return pairs.pairs == nullptr ? nullptr : pairs.pairs + at.matrix * pairs.matrix_step + a * pairs.line_step;
  };
  const auto ring_of = [&](const StoredPairs& pairs) {
    return pairs.ring == nullptr ? nullptr : pairs.ring + at.matrix * pairs.ring_matrix_step + a * p.ring;
  };
  bfloat16* const in_ring = ring_of(to.gradients);
  bfloat16* const in_segment = line_of(to.gradients);
  if (p.ring > 0) {
    store_columns(ring_of(to.weights), in_ring, p.ring, distance_in_ring(p, at, 0), p.ring_logits + number * p.ring,
                  to.ring_products + number * p.ring);
  }
  store_columns(line_of(to.weights), in_segment, p.keys, distance_of_key(at, 0), p.logits + number * p.stride,
                to.products + number * p.stride);
  if (to.shifted == nullptr) return;
  __syncwarp();  // what other lanes have stored
  bfloat16* const shifted = to.shifted + number * p.terms_stride;
  for (int n = lane_of_warp(); n < p.terms_seen; n += kWarp) {
    const int distance = p.terms_seen - 1 - n;
    const int position = at.query - distance;
    bfloat16 gradient = narrow<bfloat16>(0.0F);
    if (is_seen(at, distance))
      gradient = position < 0 ? in_ring[position + p.ring] : in_segment[position - at.first_key];
    shifted[n] = gradient;
  }
}

template <int kPack>
__global__ void add_to_queries_kernel(bfloat16* to, PairsOfPiece p, const float* added, bool aligned) {
  const int size = p.in.size;
  const int packs = size / kPack;
  const int64_t count = static_cast<int64_t>(p.matrices) * p.lines * packs;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const PairLine at = line_of_piece(p, i / packs);
    const int f = static_cast<int>(i % packs) * kPack;
    const bfloat16* const query = line_of_query(p.in.q, size, p.in, {at.row, p.head, 0, 0}, at.query);
    const Pack<bfloat16, kPack> q = load<kPack>(query + f, aligned);
    const Pack<float, kPack> more = load<kPack>(added + static_cast<int64_t>(p.head) * size + f, aligned);
    Pack<bfloat16, kPack> sum;
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum.value[k] = narrow<bfloat16>(wide(q.value[k]) + more.value[k]);
    store<kPack>(to + i * kPack, sum, aligned);
  }
}

// of_position: may be null.
template <int kPack>
__global__ void store_query_gradients_kernel(bfloat16* dq, PairsOfPiece p, const float* of_content,
                                             const float* of_position, bool aligned) {
  const int size = p.in.size;
  const int packs = size / kPack;
  const int64_t count = static_cast<int64_t>(p.matrices) * p.lines * packs;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const PairLine at = line_of_piece(p, i / packs);
    const int f = static_cast<int>(i % packs) * kPack;
    Pack<float, kPack> sum = load<kPack>(of_content + i * kPack, aligned);
    if (of_position != nullptr) {
      const Pack<float, kPack> more = load<kPack>(of_position + i * kPack, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum.value[k] += more.value[k];
    }
    Pack<bfloat16, kPack> gradient;
#pragma unroll
    for (int k = 0; k < kPack; ++k) gradient.value[k] = narrow<bfloat16>(sum.value[k]);
    store<kPack>(line_of_query(dq, size, p.in, {at.row, p.head, 0, 0}, at.query) + f, gradient, aligned);
  }
}

__global__ void store_of_head_kernel(bfloat16* to, const float* from, int64_t count, int64_t step, int64_t width) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    to[i / width * step + i % width] = narrow<bfloat16>(from[i]);
  }
}

__global__ void lowest_kernel(int32_t* lowest, AttentionOperands<bfloat16> in) {
  __shared__ int of_warp[kBlock / kWarp];
  const int row = static_cast<int>(blockIdx.x);
  int highest = 0;  // of what is as far before the segment
  for (int query = static_cast<int>(threadIdx.x); query < in.queries; query += static_cast<int>(blockDim.x)) {
    const Distances seen = distances_of(in, row, query);
    if (seen.farthest >= seen.nearest && seen.farthest - query > highest) highest = seen.farthest - query;
  }
  highest = warp_max(highest);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = highest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kBlock / kWarp; ++w) highest = of_warp[w] > highest ? of_warp[w] : highest;
  lowest[row] = -highest;
}

// The ring [R, C, Hk, W] of a key head, and where its keys stand in lines of `columns` by position.
struct RingOfHead {
  int64_t slots, columns, kv_heads, kv_head, width;
  const int32_t* head;

  __device__ int64_t line_at(int64_t row, int64_t position) const {
    int64_t slot = (head[row] + position) % slots;
    if (slot < 0) slot += slots;
    return ((row * slots + slot) * kv_heads + kv_head) * width;
  }
};

// A block has a column of a row.
template <int kPack>
__global__ void gather_ring_kernel(bfloat16* to, const bfloat16* ring, RingOfHead at, const int32_t* lowest) {
  const int64_t row = blockIdx.x / at.columns;
  const int64_t position = static_cast<int64_t>(blockIdx.x) % at.columns - at.columns;
  const bool seen = position >= lowest[row];
  bfloat16* const line = to + static_cast<int64_t>(blockIdx.x) * at.width;
  for (int64_t f = threadIdx.x * kPack; f < at.width; f += blockDim.x * kPack) {
    Pack<bfloat16, kPack> values{};
    if (seen) values = load<kPack>(ring + at.line_at(row, position) + f, true);
    store<kPack>(line + f, values, true);
  }
}

// A block has a slot of a row.
__global__ void scatter_ring_kernel(bfloat16* ring, const float* from, RingOfHead at) {
  const int64_t row = blockIdx.x / at.slots;
  const int64_t position = static_cast<int64_t>(blockIdx.x) % at.slots - at.slots;
  const float* const line = from + (row * at.columns + at.columns + position) * at.width;
  bfloat16* const to = ring + at.line_at(row, position);
  for (int64_t f = threadIdx.x; f < at.width; f += blockDim.x) to[f] = narrow<bfloat16>(line[f]);
}

dim3 blocks_of(const PairsOfPiece& pairs) {
  return dim3(static_cast<unsigned>(ceil_div(static_cast<int64_t>(pairs.matrices) * pairs.lines, kLinesAtOnce)));
}

RingOfHead ring_of_head(const Tensor& line, const Tensor& ring, const Tensor& head, int64_t kv_head) {
  return {ring.dim(1), line.dim(1), ring.dim(2), kv_head, ring.dim(3), head.data<int32_t>()};
}

constexpr int kThreadsOfColumn = 4 * kWarp;

}  // namespace

void weights_of_pairs(const PairsOfPiece& pairs, const StoredPairs& weights, float* lse) {
  launch(weights_kernel, blocks_of(pairs), kLinesAtOnce * kWarp, 0, pairs, weights, lse);
}

void gradients_of_pairs(const PairsOfPiece& pairs, const PairGradients& to) {
  launch(gradients_kernel, blocks_of(pairs), kLinesAtOnce * kWarp, 0, pairs, to);
}

void add_to_queries(bfloat16* to, const PairsOfPiece& pairs, const float* added) {
  const int64_t count = static_cast<int64_t>(pairs.matrices) * pairs.lines * pairs.in.size;
  with_pack<bfloat16>(pairs.in.size, [&](auto pack) {
    constexpr int kPack = decltype(pack)::value;
    launch(add_to_queries_kernel<kPack>, blocks_for(count / kPack), kBlock, 0, to, pairs, added,
           are_aligned({to, pairs.in.q, added}));
  });
}

void store_query_gradients(bfloat16* dq, const PairsOfPiece& pairs, const float* of_content, const float* of_position) {
  const int64_t count = static_cast<int64_t>(pairs.matrices) * pairs.lines * pairs.in.size;
  with_pack<bfloat16>(pairs.in.size, [&](auto pack) {
    constexpr int kPack = decltype(pack)::value;
    launch(store_query_gradients_kernel<kPack>, blocks_for(count / kPack), kBlock, 0, dq, pairs, of_content, of_position,
           are_aligned({dq, of_content, of_position}));
  });
}

void store_of_head(const Tensor& to, const Tensor& from, int64_t head) {
  const int64_t width = from.dim(-1);
  launch(store_of_head_kernel, blocks_for(from.numel()), kBlock, 0, to.data<bfloat16>() + head * width,
         from.data<float>(), from.numel(), to.dim(-2) * width, width);
}

void lowest_positions(const Tensor& lowest, const AttentionOperands<bfloat16>& in) {
  launch(lowest_kernel, dim3(static_cast<unsigned>(in.rows)), kBlock, 0, lowest.data<int32_t>(), in);
}

void gather_ring(const Tensor& line, const Tensor& ring, const Tensor& head, const Tensor& lowest, int64_t kv_head) {
  const RingOfHead at = ring_of_head(line, ring, head, kv_head);
  const dim3 blocks(static_cast<unsigned>(line.dim(0) * line.dim(1)));
  with_pack<bfloat16>(are_aligned({line.raw(), ring.raw()}) ? at.width : 1, [&](auto pack) {
    launch(gather_ring_kernel<decltype(pack)::value>, blocks, kThreadsOfColumn, 0, line.data<bfloat16>(),
           ring.data<bfloat16>(), at, lowest.data<int32_t>());
  });
}

void scatter_ring(const Tensor& ring, const Tensor& line, const Tensor& head, int64_t kv_head) {
  const RingOfHead at = ring_of_head(line, ring, head, kv_head);
  launch(scatter_ring_kernel, dim3(static_cast<unsigned>(ring.dim(0) * ring.dim(1))), kThreadsOfColumn, 0,
         ring.data<bfloat16>(), line.data<float>(), at);
}

}  // namespace quire::cuda
