#include "autograd/functions/chunks.h"

#include "autograd/functions/terms.h"
#include "kernels/chunk_sizes.h"

namespace quire {

Variable chunk_attention(Tape& tape, const Variable& q, const Variable& keys, const Variable& values,
                         const Variable& weight, const Tensor& chosen, double scale) {
  const int64_t rows = chosen.dim(0), key_heads = chosen.dim(1);
  const Device device = chosen.device();
  ops::ChunkAttentionInputs in{
      .q = q.value(),
      .keys = keys.value(),
      .values = values.value(),
      .weight = weight.value(),
      .chosen = chosen,
      .begin = Tensor::empty({rows, key_heads, keys.dim(2) + 1}, DType::i32, device),
      .reads = Tensor::empty({rows, key_heads, chosen.dim(2) * chosen.dim(3)}, DType::i32, device),
      .scale = scale};
  ops::chunk_reads(in.begin, in.reads, chosen);
  const ChunkSizes s(in);
  const Tensor out = Tensor::empty({s.rows, s.queries, s.heads, s.value_size}, in.q.dtype(), device);
  const Tensor lse = Tensor::empty({s.rows, s.heads, s.queries, s.chosen}, in.weight.dtype(), device);
  ops::chunk_attention(out, lse, in);
  return tape.result("chunk_attention", out, {&q, &keys, &values, &weight},
                     [q, keys, values, weight, in, lse](const Tensor& dout) {
                       const ops::ChunkAttentionGradients g{.dq = Tensor::empty_like(in.q),
                                                            .dkeys = Tensor::empty_like(in.keys),
                                                            .dvalues = Tensor::empty_like(in.values),
                                                            .dweight = Tensor::empty_like(in.weight)};
                       ops::chunk_attention_backward(g, dout, lse, in);
                       add_to_gradient(q, g.dq);
                       add_to_gradient(keys, g.dkeys);
                       add_to_gradient(values, g.dvalues);
                       add_to_gradient(weight, g.dweight);
                     });
}

}  // namespace quire
