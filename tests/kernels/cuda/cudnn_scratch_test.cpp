// A plan of memory counts for attention through cuDNN the bytes that a call takes, and the largest workspace that cuDNN
// may need. tests/support/cuda_shim/cudnn_plans.cpp has a workspace of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cudnn/cudnn_plans.h"
#include "kernels/planned_scratch.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/cuda_device.h"
#include "tests/support/peak_bytes.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 3, kQueries = 70, kSlots = 40;

// Bytes that a call takes at most beside its operands, forwards and then backwards.
std::vector<int64_t> scratch(bool ring, bool several_documents, ops::AttentionKernels kernels, Device device) {
  ops::AttentionInputs in;
  in.q = Tensor::zeros({kRows, kQueries, 4, 8}, DType::f32, device);
  in.k = Tensor::zeros({kRows, kQueries, 2, 8}, DType::f32, device);
  in.v = Tensor::zeros({kRows, kQueries, 2, 8}, DType::f32, device);
  in.first_visible = Tensor::zeros({kRows, kQueries}, DType::i32, device);
  if (ring) {
    in.cache_k = Tensor::zeros({kRows, kSlots, 2, 8}, DType::f32, device);
    in.cache_v = Tensor::zeros({kRows, kSlots, 2, 8}, DType::f32, device);
    in.cache_head = Tensor::zeros({kRows}, DType::i32, device);
    in.band.carried = kSlots;
  }
  in.band.padding = true;
  in.band.several_documents = several_documents;
  in.kernels = kernels;
  if (several_documents) {
    in.sequences = Tensor::from(std::vector<int32_t>{0, 0, 9, 0, 9, 1, 1, 0, 70, 2, 0, 3}, {4, 3}, device);
  }
  const ops::AttentionGradients gradients = gradients_like(in);
  const Tensor out = Tensor::zeros(in.q.shape(), DType::f32, device);
  const Tensor lse = Tensor::zeros({kRows, 4, kQueries}, DType::f32, device);
  return peak_bytes(
      device, {[&] { ops::attention(out, lse, in); }, [&] { ops::attention_backward(gradients, out, out, lse, in); }});
}

using CudnnScratch = CudaTest;

TEST_F(CudnnScratch, APlanTakesWhatACallTakesAndTheWorkspace) {
  for (const bool ring : {false, true}) {
    for (const bool several_documents : {false, true}) {
      SCOPED_TRACE(fmt::format("ring {}, several documents {}", ring, several_documents));
      const AttentionProblem problem{.rows = kRows,
                                     .queries = kQueries,
                                     .carried = ring ? kSlots : 0,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .size = 8,
                                     .value_size = 8,
                                     .type = DType::f32,
                                     .several_documents = several_documents};
      const auto plans = cuda::make_cudnn_plans(cuda::shape_of(problem));
      const auto taken = scratch(ring, several_documents, ops::AttentionKernels::cudnn, kCuda);
      const PlannedScratch planned(DeviceKind::cuda);
      const auto told = scratch(ring, several_documents, ops::AttentionKernels::cudnn, kMeta);
      // Blocks of the counting allocator are multiples of 64 bytes.
      constexpr int64_t kRounding = 8 * 64;
      EXPECT_NEAR(static_cast<double>(told[0] - kCudnnForwardWorkspaceBytes),
                  static_cast<double>(taken[0] - plans->forward_workspace()), kRounding);
      EXPECT_NEAR(static_cast<double>(told[1] - cudnn_backward_workspace(problem)),
                  static_cast<double>(taken[1] - plans->backward_workspace()), kRounding);
      const int64_t lines = ring ? 2 * kRows * (kSlots + kQueries) * 2 * 8 * 4 : 0;
      EXPECT_GE(told[0], kCudnnForwardWorkspaceBytes + lines);
      EXPECT_GE(told[1], cudnn_backward_workspace(problem) + 2 * lines);
      EXPECT_LT(scratch(ring, several_documents, ops::AttentionKernels::own, kMeta)[1], told[1] - lines);
    }
  }
}

}  // namespace
}  // namespace quire::test
