// Transformer-VQ (Lingle 2024): nearest codewords, statistics of their use, the cache of values by codeword, and
// attention to that cache.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// Symbols as in the paper: S codewords, D key size, Dv value size, H query heads, Hk key heads (query head h reads key
// head and codebook h / (H / Hk)). Codebooks, counts, carried means, errors, lse, u and their gradients stay f32 when
// the others are bf16 (wide_type).

// codes i32 [N, Hk] = argmin_s |x - c_s|^2, ties to the lowest; quantized [N, Hk, D] = c_code, exactly; error [N, Hk] =
// |x - c_code|^2, summed from the differences. x [N, Hk, D], codebook [Hk, S, D]. A vector with a NaN has code 0 and
// error NaN. (section 2, equation 6)
QUIRE_OP(nearest_code, const Tensor& codes, const Tensor& quantized, const Tensor& error, const Tensor& x,
         const Tensor& codebook);
// quantized [N, Hk, D] = c_code, the codewords of given codes; zero where a code is not one of 0..S-1.
QUIRE_OP(lookup_codes, const Tensor& quantized, const Tensor& codes, const Tensor& codebook);
// dx [N, Hk, D] = dquantized + 2 factor[0] mask_n (x - c_code): straight-through, plus the commitment loss.
// dquantized may be undefined (without straight-through, or when the result was not used). mask u8 [N]; factor f64 [1].
QUIRE_OP(nearest_code_backward, const Tensor& dx, const Tensor& dquantized, const Tensor& x, const Tensor& quantized,
         const Tensor& mask, const Tensor& factor);

// total f64 [1] = sum of x [N, K] over the rows with mask_n: the commitment loss from errors. x wide, mask u8 [N].
QUIRE_OP(masked_sum, const Tensor& total, const Tensor& x, const Tensor& mask);

// Statistics of a batch for the moving averages of a codebook. Both accumulate, in the order of n; a vector with code
// -1 is left out:
//   counts [Hk, S] += number of n with mask_n and code s;  sums [Hk, S, D] += their x
QUIRE_OP(code_statistics, const Tensor& counts, const Tensor& sums, const Tensor& x, const Tensor& codes,
         const Tensor& mask);
// to [Hk, S, D] += x[index[h, s], h]; index i32 [Hk, S], -1 for none.
QUIRE_OP(gather_vectors, const Tensor& to, const Tensor& x, const Tensor& index);

// A codebook is stored as sums m and counts n of the keys of each codeword (section 3.4.1).
struct CodebookUpdate {
  double decay = 0.99;      // gamma; 0 uses the batch alone
  double reseed = 0;        // codewords whose new count is below this get a key of the batch, with count 1; 0 is off
  bool reseed_all = false;  // reseeds all codewords: initialisation from data
};
// m <- gamma m + (1 - gamma) sums, n <- gamma n + (1 - gamma) counts; in place. Where control (f64 [2], kernels/
// optimizer.h) says not to apply, nothing changes. seeds [Hk, S, D] with present [Hk, S] (0 or 1): keys of the batch;
// a codeword without one is not reseeded. seeds and present may be undefined when nothing reseeds.
QUIRE_OP(codebook_update, const Tensor& m, const Tensor& n, const Tensor& sums, const Tensor& counts,
         const Tensor& seeds, const Tensor& present, const Tensor& control, const CodebookUpdate& options);
// codebook [Hk, S, D] = m / max(n', floor); n' = n, or with smoothing e > 0 (Laplace): (n + e) / (sum n + S e) sum n.
QUIRE_OP(codewords, const Tensor& codebook, const Tensor& m, const Tensor& n, double floor, double smoothing);

// The algorithm that computes the caches of the blocks of a subsequence (appendix B). The results agree up to rounding.
enum class CodeReduction { serial, matmul, scan };

// R rows of T tokens in B = ceil(T / L) blocks, and a ring of C slots with the window carried into the subsequence
// (positions -1, -2, ... are slots head - 1, head - 2, ...). Cache b of row r, 0 <= b <= B, contains the tokens at
// positions [origin[r, b], limit[r, b]) and, where origin[r, b] <= 0, the cache that the row carried. Within a run of
// equal origins limits never decrease; where the origin changes the cache begins anew. limit <= origin means no tokens.
// The row carries cache B to the next subsequence.
struct CodedTokens {
  Tensor codes;         // i32 [R, T, Hk]; -1: the token never enters
  Tensor window_codes;  // i32 [R, C, Hk], optional
  Tensor window_head;   // i32 [R], with window_codes
  Tensor origin;        // i32 [R, B + 1], at least -C
  Tensor limit;         // i32 [R, B + 1]

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&codes, &window_codes, &window_head, &origin, &limit}) f(*tensor);
  }
};
// The tokens in the order in which caches add them.
struct TokensByCode {
  // i32 [R (C + T) Hk]: position + C of the tokens that have a code, by row, head and code, in order of position; the
  // entries after them are undefined.
  Tensor positions;
  // i32 [R, B + 1, Hk, S, 2]: cache b adds the tokens [ranges[.., 0], ranges[.., 1]) of positions.
  Tensor ranges;

  template <typename F>
  void for_each_tensor(F& f) const {
    f(positions);
    f(ranges);
  }
};
QUIRE_OP(sort_by_code, const TokensByCode& to, const CodedTokens& tokens);

// Every cache has the mean value and the number of its tokens for each code, including the carried mean and count.
struct CodeCacheInputs {
  CodedTokens tokens;
  Tensor v;         // [R, T, Hk, Dv]
  Tensor window_v;  // [R, C, Hk, Dv]
  Tensor mean;      // [R, Hk, S, Dv] wide
  Tensor count;     // [R, Hk, S] wide
  CodeReduction reduction = CodeReduction::serial;

  template <typename F>
  void for_each_tensor(F& f) const {
    tokens.for_each_tensor(f);
    for (const Tensor* tensor : {&v, &window_v, &mean, &count}) f(*tensor);
  }
};
// Writes means [R, B, Hk, S, Dv] of the caches that blocks read, last [R, Hk, S, Dv] of cache B, and counts [R, B + 1,
// Hk, S], all wide: mean <- (n mean + sum v) / (n + m), n <- n + m; codes never used have mean 0. by_code comes from
// sort_by_code, here and in the backward pass. (theorem 3.7)
QUIRE_OP(code_caches, const Tensor& means, const Tensor& last, const Tensor& counts, const CodeCacheInputs& in,
         const TokensByCode& by_code);
// dv [R, T, Hk, Dv] accumulates. The carried cache and cache B are constant. counts are those that code_caches
// returned.
QUIRE_OP(code_caches_backward, const Tensor& dv, const Tensor& dmeans, const Tensor& counts, const CodeCacheInputs& in,
         const TokensByCode& by_code);

// Query t reads the cache of block t / block: codewords are keys, and means are values. logit = (q + u).c_s + log n_s;
// codes with n_s = 0 are left out.
struct CodeAttentionInputs {
  Tensor q;         // [R, T, H, D], scaled
  Tensor u;         // [H, D] wide, optional
  Tensor codebook;  // [Hk, S, D] wide
  Tensor means;     // [R, B, Hk, S, Dv]; zero for codes with n_s = 0
  Tensor counts;    // [R, B + 1, Hk, S] wide; the last cache is not read
  int64_t block = 0;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &u, &codebook, &means, &counts}) f(*tensor);
  }
};
// Continues a softmax: before the call out [R, T, H, Dv] and lse [R, H, T] contain attention to other keys
// (ops::attention), after it attention to both. (section 3.3: the division comes before values are weighted)
QUIRE_OP(code_attention, const Tensor& out, const Tensor& lse, const CodeAttentionInputs& in);
// dq [R, T, H, D] and du [H, D] accumulate, dmeans is overwritten; lse and delta (attention_delta) [R, H, T] are those
// of the whole softmax. Codebook and counts have no gradient (section 3.4.2). du and dmeans may be undefined.
QUIRE_OP(code_attention_backward, const Tensor& dq, const Tensor& du, const Tensor& dmeans, const Tensor& dout,
         const Tensor& delta, const Tensor& lse, const CodeAttentionInputs& in);

}  // namespace quire::ops
