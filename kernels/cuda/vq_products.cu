// Attention to the caches of codewords in bf16 where values have more than 128 features: products of whole matrices
// through cuBLASLt, as attention_products.h has them for keys. A line of pairs is a query and all codewords.
#include <algorithm>
#include <vector>

#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vq_attention.h"

namespace quire::cuda {

namespace {

using Operands = CodeOperands<bfloat16>;

constexpr int kLinesAtOnce = 4;  // of a block, a warp each

// Line n is a query of a row.
struct CodeLine {
  int64_t number;
  int64_t in_lse;  // its place in [R, H, T]
  const float* counts;
};
__device__ inline CodeLine code_line(const Operands& in, int head, int64_t number) {
  const int row = static_cast<int>(number / in.queries);
  const int query = static_cast<int>(number % in.queries);
  const int kv_head = head / (in.heads / in.kv_heads);
  return {number, (static_cast<int64_t>(row) * in.heads + head) * in.queries + query,
          in.counts + cache_of(in, row, query / in.block, kv_head)};
}
// In powers of 2; -inf for a codeword that is not in use, whatever its product.
__device__ inline float logit_of(const CodeLine& at, int code, float product) {
  const float count = at.counts[code];
  return count > 0 ? product * kLog2E + log2f(count) : -std::numeric_limits<float>::infinity();
}

// Probabilities in the whole softmax, and what was there before times its share of it.
__global__ void __launch_bounds__(kLinesAtOnce* kWarp)
    code_weights_kernel(bfloat16* weights, bfloat16* out, float* lse, const float* logits, Operands in, int head) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kLinesAtOnce + warp_of_block();
  if (number >= static_cast<int64_t>(in.rows) * in.queries) return;  // the whole warp
  const CodeLine at = code_line(in, head, number);
  const float* const products = logits + number * in.codes;
  const float before = lse[at.in_lse] * kLog2E;
  float top = before > std::numeric_limits<float>::lowest() ? before : std::numeric_limits<float>::lowest();
  for (int code = lane_of_warp(); code < in.codes; code += kWarp) {
    const float logit = logit_of(at, code, products[code]);
    top = logit > top || logit != logit ? logit : top;
  }
  top = warp_max(top);
  float sum = 0;
  for (int code = lane_of_warp(); code < in.codes; code += kWarp) {
    sum += power_of_two(logit_of(at, code, products[code]) - top);
  }
  const float of_before = power_of_two(before - top);
  sum = warp_sum(sum) + of_before;
  const bool empty = sum == 0;
  const float factor = empty ? 0.0F : 1.0F / sum;
  for (int code = lane_of_warp(); code < in.codes; code += kWarp) {
    const float weight = power_of_two(logit_of(at, code, products[code]) - top) * factor;
    weights[number * in.codes + code] = narrow<bfloat16>(weight);
  }
  bfloat16* const line = out + (number * in.heads + head) * in.value_size;
  constexpr int kChunk = SharedLines<64>::kChunk;
  for (int f = lane_of_warp() * kChunk; f < in.value_size; f += kWarp * kChunk) {
    Words values = *reinterpret_cast<const Words*>(line + f);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      // Nothing of what was attended to when that was nothing.
      const float share = of_before * factor;
      values.x[n] = share == 0 ? 0 : packed(lower_half(values.x[n]) * share, upper_half(values.x[n]) * share);
    }
    *reinterpret_cast<Words*>(line + f) = values;
  }
  if (lane_of_warp() == 0) {
    lse[at.in_lse] = empty ? -std::numeric_limits<float>::infinity() : (top + log2f(sum)) * kLn2;
  }
}

// Probabilities, and gradients of logits. products: of dout and means.
__global__ void __launch_bounds__(kLinesAtOnce* kWarp)
    code_gradients_kernel(bfloat16* weights, bfloat16* gradients, const float* logits, const float* products,
                          Operands in, CodeBackwardOperands<bfloat16> back, int head) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * kLinesAtOnce + warp_of_block();
  if (number >= static_cast<int64_t>(in.rows) * in.queries) return;  // the whole warp
  const CodeLine at = code_line(in, head, number);
  const float log_sum = back.lse[at.in_lse] * kLog2E;
  const float delta = back.delta[at.in_lse];
  const bool empty = log_sum == -std::numeric_limits<float>::infinity();
  for (int code = lane_of_warp(); code < in.codes; code += kWarp) {
    const int64_t pair = number * in.codes + code;
    float weight = 0;
    float gradient = 0;
    if (!empty && at.counts[code] > 0) {
      weight = power_of_two(logit_of(at, code, logits[pair]) - log_sum);
      gradient = weight * (products[pair] - delta);
    }
    weights[pair] = narrow<bfloat16>(weight);
    gradients[pair] = narrow<bfloat16>(gradient);
  }
}

template <int kPack>
__global__ void content_kernel(bfloat16* to, Operands in, int head, bool aligned) {
  const int64_t packs = in.size / kPack;
  const int64_t count = static_cast<int64_t>(in.rows) * in.queries * packs;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t f = i % packs * kPack;
    const Pack<bfloat16, kPack> query = load<kPack>(in.q + (i / packs * in.heads + head) * in.size + f, aligned);
    const Pack<float, kPack> added = load<kPack>(in.u + static_cast<int64_t>(head) * in.size + f, aligned);
    Pack<bfloat16, kPack> sum;
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum.value[k] = narrow<bfloat16>(wide(query.value[k]) + added.value[k]);
    store<kPack>(to + i * kPack, sum, aligned);
  }
}

__global__ void add_terms_kernel(bfloat16* dq, const float* terms, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    dq[i] = narrow<bfloat16>(wide(dq[i]) + terms[i]);
  }
}

// Blocks of queries whose caches are read by one product: of some rows, or of one row.
struct Piece {
  int64_t row, rows, block, blocks;
};

class HeadProducts {
 public:
  HeadProducts(const ops::CodeAttentionInputs& in, const CodeAttentionSizes& sizes, const Operands& operands,
               const CodeScratch& codes, const CodeProductScratch& scratch, int64_t head)
      : s_(sizes), operands_(operands), codes_(codes), head_(head) {
    const int64_t lines = s_.rows * s_.queries;
    if (in.u.defined()) {
      content_ = scratch.content;
      with_pack<bfloat16>(s_.size, [&](auto pack) {
        constexpr int kPack = decltype(pack)::value;
        launch(content_kernel<kPack>, blocks_for(lines * s_.size / kPack), kBlock, 0, content_.data<bfloat16>(),
               operands, static_cast<int>(head), are_aligned({content_.raw(), in.q.raw(), in.u.raw()}));
      });
    } else {
      content_ = in.q.strided({lines, s_.size}, {s_.heads * s_.size, 1}, head * s_.size);
    }
    gemm(scratch.logits, content_, codebook(), {.transpose_b = true});
  }

  int64_t kv_head() const { return head_ / (s_.heads / s_.kv_heads); }
  Tensor codebook() const { return codes_.codebook.select(0, kv_head()); }

  std::vector<Piece> pieces() const {
    std::vector<Piece> found;
    const int64_t block = operands_.block;
    const int64_t whole = s_.queries / block;
    for (int64_t row = 0; whole > s_.rows && row < s_.rows; ++row) found.push_back({row, 1, 0, whole});
    for (int64_t b = whole > s_.rows ? whole : 0; b < operands_.blocks; ++b) found.push_back({0, s_.rows, b, 1});
    return found;
  }
  int64_t lines_of(const Piece& piece) const {
    return std::min<int64_t>(operands_.block, s_.queries - piece.block * operands_.block);
  }
  // [matrices, lines, W] of a head of a tensor of queries [R, T, heads, W].
  Tensor queries(const Tensor& tensor, int64_t heads, int64_t head, int64_t width, const Piece& piece) const {
    const int64_t step = heads * width;
    return tensor.strided({piece.rows * piece.blocks, lines_of(piece), width},
                          {(piece.blocks > 1 ? operands_.block : s_.queries) * step, step, 1},
                          (piece.row * s_.queries + piece.block * operands_.block) * step + head * width);
  }
  Tensor pairs(const Tensor& tensor, const Piece& piece) const { return queries(tensor, 1, 0, s_.codes, piece); }
  // [matrices, S, Dv] of the caches of a piece in [R, B, Hk, S, Dv].
  Tensor caches(const Tensor& means, const Piece& piece) const {
    const int64_t step = s_.codes * s_.value_size;
    const int64_t of_row = means.dim(1) * s_.kv_heads * step;
    return means.strided({piece.rows * piece.blocks, s_.codes, s_.value_size},
                         {piece.blocks > 1 ? s_.kv_heads * step : of_row, s_.value_size, 1},
                         piece.row * of_row + (piece.block * s_.kv_heads + kv_head()) * step);
  }

  dim3 thread_blocks() const { return dim3(static_cast<unsigned>(ceil_div(s_.rows * s_.queries, kLinesAtOnce))); }

 private:
  const CodeAttentionSizes& s_;
  const Operands& operands_;
  const CodeScratch& codes_;
  int64_t head_;
  Tensor content_;
};

}  // namespace

void code_attention_by_products(const Tensor& out, const Tensor& lse, const ops::CodeAttentionInputs& in,
                                const CodeAttentionSizes& s) {
  const CodeScratch codes(s, in.q.device());
  round_codes(codes, in, s);
  const CodeProductScratch scratch(s, in, false);
  const Operands operands = operands_of<bfloat16>(in, s);
  for (int64_t head = 0; head < s.heads; ++head) {
    const HeadProducts products(in, s, operands, codes, scratch, head);
    launch(code_weights_kernel, products.thread_blocks(), kLinesAtOnce * kWarp, 0, scratch.weights.data<bfloat16>(),
           out.data<bfloat16>(), lse.data<float>(), scratch.logits.data<float>(), operands, static_cast<int>(head));
    for (const Piece& piece : products.pieces()) {
      gemm(products.queries(out, s.heads, head, s.value_size, piece), products.pairs(scratch.weights, piece),
           products.caches(in.means, piece), {.accumulate = true});
    }
  }
}

void code_gradients_by_products(const Tensor& dq, const Tensor& terms, const Tensor& dmeans, const Tensor& dout,
                                const CodeBackwardOperands<bfloat16>& back, const ops::CodeAttentionInputs& in,
                                const CodeAttentionSizes& s) {
  const CodeScratch codes(s, in.q.device());
  round_codes(codes, in, s);
  const CodeProductScratch scratch(s, in, true);
  const Operands operands = operands_of<bfloat16>(in, s);
  for (int64_t head = 0; head < s.heads; ++head) {
    const HeadProducts products(in, s, operands, codes, scratch, head);
    const auto of_values = [&](const Piece& piece) {
      return products.queries(dout, s.heads, head, s.value_size, piece);
    };
    for (const Piece& piece : products.pieces()) {
      gemm(products.pairs(scratch.products, piece), of_values(piece), products.caches(in.means, piece),
           {.transpose_b = true});
    }
    launch(code_gradients_kernel, products.thread_blocks(), kLinesAtOnce * kWarp, 0, scratch.weights.data<bfloat16>(),
           scratch.gradients.data<bfloat16>(), scratch.logits.data<float>(), scratch.products.data<float>(), operands,
           back, static_cast<int>(head));
    const Tensor& to = terms.defined() ? terms : dq;
    gemm(to.strided({s.rows * s.queries, s.size}, {s.heads * s.size, 1}, head * s.size), scratch.gradients,
         products.codebook(), {.accumulate = !terms.defined()});
    if (!dmeans.defined()) continue;
    const bool first = head % (s.heads / s.kv_heads) == 0;
    for (const Piece& piece : products.pieces()) {
      gemm(products.caches(dmeans, piece), products.pairs(scratch.weights, piece), of_values(piece),
           {.transpose_a = true, .accumulate = !first});
    }
  }
  if (!terms.defined()) return;
  launch(add_terms_kernel, blocks_for(dq.numel()), kBlock, 0, dq.data<bfloat16>(), terms.data<float>(), dq.numel());
}

}  // namespace quire::cuda
