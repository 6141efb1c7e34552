// Defines the operations that the headers of this folder declare, and says how many floating-point operations some of
// them take. A new header needs its line here; the sources of kernels, and what binds them, are found (binders.cmake).
#define QUIRE_DEFINE_OPS
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/axis.h"
#include "kernels/block_attention.h"
#include "kernels/choice.h"
#include "kernels/convolution.h"
#include "kernels/cross_entropy.h"
#include "kernels/delta.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/knn.h"
#include "kernels/listed_attention.h"
#include "kernels/listed_sizes.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "kernels/position.h"
#include "kernels/rotary.h"
#include "kernels/state.h"
#include "kernels/vq.h"

namespace quire::ops {

namespace {

double gemm_flops(const Tensor& c, const Tensor& a, const Tensor&, const GemmOptions& options) {
  return 2.0 * static_cast<double>(c.numel()) * static_cast<double>(a.dim(options.transpose_a ? -2 : -1));
}

// Returns the number of pairs of a query and a key it sees, times heads.
double attention_pairs(const AttentionInputs& in) {
  const Tensor first_on_host = in.first_visible.to(kCpu);
  const Tensor last_on_host = in.last_visible.to(kCpu);
  const int32_t* first = first_on_host.data<int32_t>();
  const int32_t* last = last_on_host.defined() ? last_on_host.data<int32_t>() : nullptr;
  const int64_t queries = in.q.dim(1);
  double pairs = 0;
  for (int64_t i = 0; i < first_on_host.numel(); ++i) {
    const int64_t end = last == nullptr ? i % queries + (in.attend_self ? 1 : 0) : last[i] + 1;
    pairs += static_cast<double>(std::max<int64_t>(0, end - first[i]));
  }
  return pairs * static_cast<double>(in.q.dim(2));
}

// Counts the products of a logit (one more for r) and with a value.
double attention_flops(const Tensor&, const Tensor&, const AttentionInputs& in) {
  const auto key = static_cast<double>(in.q.dim(3));
  return attention_pairs(in) * 2 * (key * (in.r.defined() ? 2 : 1) + static_cast<double>(in.v.dim(3)));
}

// Counts the logits again, and two products for each one of the forward pass.
double attention_backward_flops(const AttentionGradients&, const Tensor&, const Tensor&, const Tensor&,
                                const AttentionInputs& in) {
  const auto key = static_cast<double>(in.q.dim(3));
  return attention_pairs(in) * 2 * (key * (in.r.defined() ? 6 : 3) + 2 * static_cast<double>(in.v.dim(3)));
}

// Returns the number of pairs of a query and an entry that is read: all readable entries, or at most `top_k` of them.
double memory_pairs(const Tensor& q, const KnnMemory& memory, int64_t top_k) {
  const Tensor on_host = memory.length.to(kCpu);
  double entries = 0;
  for (int64_t r = 0; r < on_host.numel(); ++r) {
    entries += static_cast<double>(std::min<int64_t>(on_host.data<int32_t>()[r], top_k));
  }
  return entries * static_cast<double>(q.dim(1) * q.dim(2));
}

double knn_search_flops(const Tensor&, const Tensor&, const Tensor& q, const KnnMemory& memory, KnnSearch) {
  return memory_pairs(q, memory, memory.keys.dim(1)) * 2 * static_cast<double>(q.dim(3));
}

// Returns the number of pairs with retrieved entries, as many as there are.
double knn_attention_pairs(const KnnAttentionInputs& in) {
  return memory_pairs(in.q, in.memory, in.index.dim(3));
}

double knn_attention_flops(const Tensor&, const Tensor&, const KnnAttentionInputs& in, bool) {
  return knn_attention_pairs(in) * 2 * static_cast<double>(in.q.dim(3) + in.memory.values.dim(3));
}

double knn_attention_backward_flops(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                    const KnnAttentionInputs& in, bool) {
  return knn_attention_pairs(in) * 2 * static_cast<double>(2 * in.q.dim(3) + in.memory.values.dim(3));
}

// Returns the number of pairs of a query and a key it sees, times heads.
double block_pairs(const BlockAttentionInputs& in) {
  const Tensor blocks = in.block.to(kCpu), firsts = in.first.to(kCpu);
  const int64_t keys = in.k.dim(1), queries = in.q.dim(1), heads = in.q.dim(2);
  double pairs = 0;
  for (int64_t line = 0; line < in.q.dim(0) * queries; ++line) {
    const int32_t* const block = blocks.data<int32_t>() + line / queries * keys;
    const int64_t place = keys - queries + line % queries;
    if (block[place] < firsts.data<int32_t>()[line]) continue;
    int64_t first = place;
    while (first > 0 && block[first - 1] >= firsts.data<int32_t>()[line]) --first;
    pairs += static_cast<double>((place + 1 - first) * heads);
  }
  return pairs;
}

double block_attention_flops(const Tensor&, const Tensor&, const BlockAttentionInputs& in) {
  return block_pairs(in) * 2 * static_cast<double>(in.q.dim(3) + in.v.dim(3));
}

double block_attention_backward_flops(const BlockAttentionGradients&, const Tensor&, const Tensor&, const Tensor&,
                                      const Tensor&, const BlockAttentionInputs& in) {
  return block_pairs(in) * 2 * static_cast<double>(3 * in.q.dim(3) + 2 * in.v.dim(3));
}

// Returns the number of pairs of a query and a key of a listed block, times heads.
double listed_pairs(const ListedAttentionInputs& in) {
  const std::vector<int32_t> blocks = in.blocks.to_vector<int32_t>();
  const std::vector<int32_t> lists = in.list.defined() ? in.list.to_vector<int32_t>() : std::vector<int32_t>();
  const int64_t queries = in.q.dim(1), count = in.blocks.dim(1), of_list = in.blocks.dim(2) * in.blocks.dim(3);
  int64_t read = 0;
  for (int64_t i = 0; i < in.q.dim(0) * queries; ++i) {
    const int64_t list = lists.empty() ? i % queries : lists[static_cast<size_t>(i)];
    if (list < 0 || list >= count) continue;
    const auto own = blocks.begin() + (i / queries * count + list) * of_list;
    read += std::count_if(own, own + of_list, [](int32_t block) { return block >= 0; });
  }
  return static_cast<double>(read * ListedSizes(in).length * (in.q.dim(2) / in.blocks.dim(2)));
}

double listed_attention_flops(const Tensor&, const Tensor&, const Tensor&, const ListedAttentionInputs& in) {
  return listed_pairs(in) * 2 * static_cast<double>(in.q.dim(3) + in.values.dim(3));
}

// Counts the logits, the gradients of their softmax, and the requested gradients.
double listed_attention_backward_flops(const ListedAttentionGradients& g, const Tensor&, const Tensor&, const Tensor&,
                                       const Tensor&, const ListedAttentionInputs& in) {
  const int64_t by_key = 1 + (g.dq.defined() ? 1 : 0) + (g.dkeys.defined() || g.down_keys.defined() ? 1 : 0);
  const int64_t by_value = 1 + (g.dvalues.defined() || g.down_values.defined() ? 1 : 0);
  return listed_pairs(in) * 2 * static_cast<double>(by_key * in.q.dim(3) + by_value * in.values.dim(3));
}

double nearest_code_flops(const Tensor&, const Tensor&, const Tensor&, const Tensor& x, const Tensor& codebook) {
  return 2.0 * static_cast<double>(x.numel()) * static_cast<double>(codebook.dim(1));
}

// Returns the number of pairs of a query and a codeword.
double code_attention_pairs(const CodeAttentionInputs& in) {
  const int64_t queries = in.q.numel() / in.q.dim(3);
  return static_cast<double>(queries) * static_cast<double>(in.codebook.dim(1));
}

double code_attention_flops(const Tensor&, const Tensor&, const CodeAttentionInputs& in) {
  return code_attention_pairs(in) * 2 * static_cast<double>(in.q.dim(3) + in.means.dim(4));
}

double code_attention_backward_flops(const Tensor&, const Tensor&, const Tensor& dmeans, const Tensor&, const Tensor&,
                                     const Tensor&, const CodeAttentionInputs& in) {
  return code_attention_pairs(in) * 2 *
         static_cast<double>(2 * in.q.dim(3) + (dmeans.defined() ? 2 : 1) * in.means.dim(4));
}

// Two products with the state for each token, and the decay; three times as much, and the state again, backwards.
double delta_rule_flops(const Tensor& out, const Tensor&, const Tensor&, const DeltaInputs& in) {
  return 7.0 * static_cast<double>(out.numel() * in.q.dim(2));
}

double delta_rule_backward_flops(const DeltaGradients&, const Tensor& dout, const Tensor&, const Tensor&,
                                 const DeltaInputs& in) {
  return 21.0 * static_cast<double>(dout.numel() * in.q.dim(2));
}

[[maybe_unused]] const bool counted = [] {
  gemm.count_flops(gemm_flops);
  nearest_code.count_flops(nearest_code_flops);
  code_attention.count_flops(code_attention_flops);
  code_attention_backward.count_flops(code_attention_backward_flops);
  attention.count_flops(attention_flops);
  attention_backward.count_flops(attention_backward_flops);
  block_attention.count_flops(block_attention_flops);
  block_attention_backward.count_flops(block_attention_backward_flops);
  listed_attention.count_flops(listed_attention_flops);
  listed_attention_backward.count_flops(listed_attention_backward_flops);
  knn_search.count_flops(knn_search_flops);
  knn_attention.count_flops(knn_attention_flops);
  knn_attention_backward.count_flops(knn_attention_backward_flops);
  delta_rule.count_flops(delta_rule_flops);
  delta_rule_backward.count_flops(delta_rule_backward_flops);
  return true;
}();

}  // namespace

}  // namespace quire::ops
