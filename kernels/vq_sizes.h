// The sizes of calls of Transformer-VQ's operations, and the checks that the kernels of all devices make on their
// operands: types, contiguous, matching shapes. They throw Error(internal). The values of codes, origins and limits are
// not checked, since the host would have to wait for the device.
#pragma once

#include "kernels/vq.h"

namespace quire {

struct CodeSizes {
  int64_t vectors, kv_heads, codes, size;
};
CodeSizes check_nearest_code(const Tensor& codes, const Tensor& quantized, const Tensor& error, const Tensor& x,
                             const Tensor& codebook);
void check_nearest_code_backward(const Tensor& dx, const Tensor& dquantized, const Tensor& x, const Tensor& quantized,
                                 const Tensor& mask, const Tensor& factor);
void check_masked_sum(const Tensor& total, const Tensor& x, const Tensor& mask);
CodeSizes check_code_statistics(const Tensor& counts, const Tensor& sums, const Tensor& x, const Tensor& codes,
                                const Tensor& mask);
CodeSizes check_lookup_codes(const Tensor& quantized, const Tensor& codes, const Tensor& codebook);
CodeSizes check_gather_vectors(const Tensor& to, const Tensor& x, const Tensor& index);
void check_codebook_update(const Tensor& m, const Tensor& n, const Tensor& sums, const Tensor& counts,
                           const Tensor& seeds, const Tensor& present, const Tensor& control,
                           const ops::CodebookUpdate& options);
void check_codewords(const Tensor& codebook, const Tensor& m, const Tensor& n);

struct CodedTokenSizes {
  int64_t rows, tokens, kv_heads, slots;
  int64_t caches;  // B + 1

  explicit CodedTokenSizes(const ops::CodedTokens& in);
};
ops::TokensByCode empty_tokens_by_code(const ops::CodedTokens& in, int64_t codes);
void check_tokens_by_code(const CodedTokenSizes& sizes, int64_t codes, const ops::TokensByCode& by_code);

struct CodeCacheSizes : CodedTokenSizes {
  int64_t codes, value_size;

  explicit CodeCacheSizes(const ops::CodeCacheInputs& in);
};
void check_code_caches(const CodeCacheSizes& sizes, const Tensor& means, const Tensor& last, const Tensor& counts,
                       const ops::CodeCacheInputs& in, const ops::TokensByCode& by_code);
void check_code_caches_backward(const CodeCacheSizes& sizes, const Tensor& dv, const Tensor& dmeans,
                                const Tensor& counts, const ops::CodeCacheInputs& in, const ops::TokensByCode& by_code);

struct CodeAttentionSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size, codes, block;
  int64_t caches;  // B + 1

  explicit CodeAttentionSizes(const ops::CodeAttentionInputs& in);
};
void check_code_attention(const CodeAttentionSizes& sizes, const Tensor& out, const Tensor& lse,
                          const ops::CodeAttentionInputs& in);
void check_code_attention_backward(const CodeAttentionSizes& sizes, const Tensor& dq, const Tensor& du,
                                   const Tensor& dmeans, const Tensor& dout, const Tensor& delta, const Tensor& lse,
                                   const ops::CodeAttentionInputs& in);

}  // namespace quire
