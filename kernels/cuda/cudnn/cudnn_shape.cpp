#include "kernels/cuda/cudnn/cudnn_plans.h"

namespace quire::cuda {

CudnnShape shape_of(const AttentionProblem& p) {
  const int64_t keys = p.carried + p.queries;
  // A window that reaches all keys of the call is no limit.
  const bool limited = p.window && *p.window < keys - 1;
  return {.rows = p.rows,
          .queries = p.queries,
          .keys = keys,
          .heads = p.heads,
          .kv_heads = p.kv_heads,
          .size = p.size,
          .value_size = p.value_size,
          .window = limited ? *p.window : -1,
          .lengths = p.carried > 0 || p.several_documents,
          .ragged = p.several_documents,
          .type = p.type};
}

}  // namespace quire::cuda
