// cuDNN's attention for one shape, behind an interface without cuDNN's types: its C++ headers are included in one file
// only (cudnn_plans.cpp), which takes a minute to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/attention_choices.h"

namespace quire::cuda {

// Tensors are [R, T or S, heads, features] and contiguous. Query i of a row sees the keys j with
//   i + d - window <= j <= i + d,  d = key length - query length of the row,
// below the row's key length. Without lengths, S = T and d = 0.
struct CudnnShape {
  int64_t rows, queries, keys, heads, kv_heads, size, value_size;  // R, T, S, H, Hk, D, Dv
  int64_t window;                                                  // -1: no limit
  bool lengths;
  DType type;
  auto operator<=>(const CudnnShape&) const = default;
};
CudnnShape shape_of(const AttentionProblem& problem);

struct CudnnForward {
  const void *q, *k, *v;
  const void *query_lengths, *key_lengths;  // i32 [R]
  void *out, *lse;                          // lse: f32 [R, H, T]
  float scale;
};
struct CudnnBackward {
  const void *q, *k, *v, *out, *dout, *lse;
  const void *query_lengths, *key_lengths;
  void *dq, *dk, *dv;
  float scale;
};

class CudnnPlans {
 public:
  virtual ~CudnnPlans() = default;
  // Bytes that the caller gives each pass; at most kCudnnWorkspaceBytes.
  virtual int64_t forward_workspace() const = 0;
  virtual int64_t backward_workspace() const = 0;
  virtual void forward(const CudnnForward& operands, void* workspace) = 0;
  virtual void backward(const CudnnBackward& operands, void* workspace) = 0;
};

// Its deterministic backward pass keeps a sum of dq per tile of keys, which grows with T S. A shape that needs more
// than this has no plan.
inline constexpr int64_t kCudnnWorkspaceBytes = int64_t{512} << 20;

// For the GPU at hand. The backward pass is the deterministic one. Error(config) says why there are none.
std::unique_ptr<CudnnPlans> make_cudnn_plans(const CudnnShape& shape);
// "9.19.0"; empty without the library.
std::string cudnn_library_version();

// What plans are built for.
struct CudnnTarget {
  int chip = 0;  // 80 or 90 for sm_80 or sm_90
  // Of a GPU that is not at hand, cuDNN's text (JSON) about it; plans for it cannot run. Empty: the one at hand.
  std::string properties = {};
  void* stream = nullptr;  // cudaStream_t: where plans run
};
std::unique_ptr<CudnnPlans> build_cudnn_plans(const CudnnShape& shape, const CudnnTarget& target);

}  // namespace quire::cuda
