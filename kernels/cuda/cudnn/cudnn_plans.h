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
// below the row's key length. Without lengths, S = T and d = 0. Ragged: R sequences of at most T queries and S keys
// stand in the place of rows, each anywhere in tensors of R T and R S positions; what is in none of them is left as it
// is.
struct CudnnShape {
  int64_t rows, queries, keys, heads, kv_heads, size, value_size;  // R, T, S, H, Hk, D, Dv
  int64_t window;                                                  // -1: no limit
  bool lengths;
  bool ragged;  // with lengths
  DType type;
  auto operator<=>(const CudnnShape&) const = default;
};
CudnnShape shape_of(const AttentionProblem& problem);

// Holds pointers to the device, at multiples of 16 bytes.
struct CudnnSequences {
  const void *query_lengths = nullptr, *key_lengths = nullptr;  // i32 [R], 0 for absent sequences
  // Each of these says where sequences begin, in elements: i64 [R + 1], ascending; the last number is the end of the
  // last sequence. Gradients have the offsets of the tensors they belong to.
  const void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *lse = nullptr;
};

struct CudnnForward {
  const void *q, *k, *v;
  CudnnSequences sequences;
  void *out, *lse;  // lse: f32 [R, H, T]; ragged: [R, T, H]
  float scale;
};
struct CudnnBackward {
  const void *q, *k, *v, *out, *dout, *lse;
  CudnnSequences sequences;
  void *dq, *dk, *dv;
  float scale;
};

class CudnnPlans {
 public:
  virtual ~CudnnPlans() = default;
  // Returns the bytes of workspace that the caller gives each pass, at most kCudnnWorkspaceBytes.
  virtual int64_t forward_workspace() const = 0;
  virtual int64_t backward_workspace() const = 0;
  virtual void forward(const CudnnForward& operands, void* workspace) = 0;
  virtual void backward(const CudnnBackward& operands, void* workspace) = 0;
};

// Builds plans for this process's GPU. The backward pass is the deterministic one. Error(config) says why none can be
// built.
std::unique_ptr<CudnnPlans> make_cudnn_plans(const CudnnShape& shape);
// Returns "9.19.0", or an empty text without the library.
std::string cudnn_library_version();

// Describes the GPU that plans are built for.
struct CudnnTarget {
  int chip = 0;  // 80 or 90 for sm_80 or sm_90
  // cuDNN's description (JSON) of a GPU that is not present; plans for it cannot run. Empty: the present one.
  std::string properties = {};
  void* stream = nullptr;  // cudaStream_t: where plans run
};
std::unique_ptr<CudnnPlans> build_cudnn_plans(const CudnnShape& shape, const CudnnTarget& target);

}  // namespace quire::cuda
