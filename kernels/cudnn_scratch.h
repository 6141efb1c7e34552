// Scratch memory that attention through cuDNN (kernels/cuda/cudnn/cudnn_attention.cpp) takes beside its operands while
// a call lasts. The kernels take it through these structs, and so does a plan on Device::meta
// (kernels/planned_scratch.h). Tensors that a call does not need stay undefined.
#pragma once

#include "kernels/attention_sizes.h"

namespace quire {

// Tables for several documents in a row: cuDNN is called once for every `rows` sequences, so that its workspace and its
// set of plans do not grow with their number.
struct CudnnSequenceTables {
  // Each table begins at a multiple of 16 bytes.
  static constexpr int64_t kAlignedLengths = 4;
  static constexpr int64_t kAlignedOffsets = 2;
  enum Offset : int64_t { kOfQ, kOfK, kOfV, kOfOut, kOfLse, kOffsets };

  int64_t calls = 0;
  Tensor lengths;  // i32 [calls, 2, sequences of a call or more]: queries, keys
  Tensor offsets;  // i64 [calls, kOffsets, sequences of a call + 1 or more], in elements

  CudnnSequenceTables(const AttentionSizes& sizes, const ops::AttentionInputs& in);
};

// Carried and new keys and values in adjacent memory.
struct CudnnLines {
  Tensor k, v;                        // with carried keys: [R, B + T, Hk, D or Dv], B = AttentionBand::carried
  Tensor query_lengths, key_lengths;  // with carried keys: i32 [R]

  CudnnLines(const AttentionSizes& sizes, const ops::AttentionInputs& in);
};

// Gradients that the backward pass writes although the caller does not need them, or that are copied back to the ring.
struct CudnnGradients {
  Tensor dout;  // with padding and one document in a row: zero for queries that see nothing
  Tensor dq, dk, dv;

  CudnnGradients(const CudnnLines& lines, const ops::AttentionGradients& gradients, const Tensor& dout,
                 const ops::AttentionInputs& in);
};

}  // namespace quire
