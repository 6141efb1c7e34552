// A plan counts for a call the bytes that the CUDA kernels take.
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/block_attention.h"
#include "kernels/delta.h"
#include "kernels/knn.h"
#include "kernels/listed_attention.h"
#include "kernels/planned_scratch.h"
#include "kernels/vq.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"
#include "tests/support/peak_bytes.h"

namespace quire::test {
namespace {

using CudaScratch = CudaTest;
using Bytes = std::vector<int64_t>;

// Returns what calls take on the device, and what a plan counts for them; expects the same.
std::pair<Bytes, Bytes> taken_and_told(const std::function<Bytes(Device)>& scratch, double tolerance = 8 * 64) {
  const Bytes taken = scratch(kCuda);
  const PlannedScratch planned(DeviceKind::cuda);
  const Bytes told = scratch(kMeta);
  for (size_t i = 0; i < taken.size(); ++i) {
    // Blocks of the counting allocator are multiples of 64 bytes.
    EXPECT_NEAR(static_cast<double>(told[i]), static_cast<double>(taken[i]), tolerance) << i;
  }
  return {taken, told};
}

ops::AttentionInputs moved(ops::AttentionInputs in, DType type, Device device) {
  const auto move = [&](Tensor& tensor, DType to) {
    if (!tensor.defined()) return;
    tensor = device == kMeta ? Tensor::empty(tensor.shape(), tensor.dtype() == DType::f64 ? to : tensor.dtype(), kMeta)
                             : on_device(converted(tensor, to), device);
  };
  for (Tensor* t : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v, &in.r}) move(*t, type);
  for (Tensor* t : {&in.cache_head, &in.first_visible, &in.bias, &in.u, &in.v_bias}) move(*t, wide_type(type));
  return in;
}

// Bytes that the backward pass takes at most beside its operands.
Bytes scratch_of_backward(const AttentionForm& form, DType type, Device device) {
  const ops::AttentionInputs in = moved(attention_inputs(form, 3), type, device);
  const Tensor out = Tensor::zeros({form.rows, form.queries, form.heads, form.value_size}, type, device);
  const Tensor lse = Tensor::zeros({form.rows, form.heads, form.queries}, DType::f32, device);
  const ops::AttentionGradients gradients = gradients_like(in);
  return peak_bytes(device, {[&] { ops::attention_backward(gradients, out, out, lse, in); }});
}

TEST_F(CudaScratch, APlanTakesWhatTheKernelsTake) {
  const AttentionForm forms[] = {
      {.queries = 70, .slots = 5},
      {.queries = 130, .heads = 4, .bias = true},
      {.queries = 70, .size = 16, .value_size = 136},
      {.rows = 3, .queries = 200, .size = 8, .value_size = 8, .slots = 70, .relative = true}};
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const AttentionForm& form : forms) {
      EXPECT_GT(taken_and_told([&](Device device) { return scratch_of_backward(form, type, device); }).first[0], 0);
    }
  }
  EXPECT_EQ(scratch_of_backward(forms[0], DType::f32, kMeta)[0], 0);  // outside of a plan nothing is taken
}

// Bytes that attention to blocks takes at most beside its operands, forwards and then backwards.
Bytes scratch_of_blocks(int64_t queries, int64_t keys, bool landmarks, Device device) {
  ops::BlockAttentionInputs in;
  in.q = Tensor::zeros({2, queries, 4, 8}, DType::bf16, device);
  in.k = Tensor::zeros({2, keys, 2, 8}, DType::bf16, device);
  in.v = Tensor::zeros({2, keys, 2, 8}, DType::bf16, device);
  in.block = Tensor::zeros({2, keys}, DType::i32, device);
  in.first = Tensor::zeros({2, queries}, DType::i32, device);
  if (landmarks) in.landmark = Tensor::zeros({2, keys}, DType::u8, device);
  const Tensor out = Tensor::zeros(in.q.shape(), DType::bf16, device);
  const Tensor lse = Tensor::zeros({2, 4, queries}, DType::f32, device);
  const ops::BlockAttentionGradients gradients{Tensor::empty_like(in.q), Tensor::empty_like(in.k),
                                               Tensor::empty_like(in.v)};
  return peak_bytes(device, {[&] { ops::block_attention(out, lse, in); },
                             [&] { ops::block_attention_backward(gradients, out, lse, out, lse, in); }});
}

TEST_F(CudaScratch, APlanTakesWhatAttentionToBlocksTakes) {
  for (const bool landmarks : {false, true}) {
    const auto scratch = [&](Device device) { return scratch_of_blocks(70, 300, landmarks, device); };
    for (const int64_t taken : taken_and_told(scratch).first) EXPECT_GT(taken, 0);
  }
}

// Bytes that listed attention takes at most beside its operands, forwards and then backwards; the gradients of keys are
// asked for with weights.
Bytes scratch_of_listed(DType type, bool weights, bool with_keys, Device device) {
  ops::ListedAttentionInputs in;
  in.q = Tensor::zeros({2, 30, 4, 8}, type, device);
  in.keys = Tensor::zeros({5, 70, 2, 8}, type, device);
  in.values = Tensor::zeros({5, 70, 2, 24}, type, device);
  in.blocks = Tensor::zeros(weights ? Shape{2, 6, 1, 3} : Shape{2, 30, 4, 3}, DType::i32, device);
  if (weights) in.weight = Tensor::zeros({2, 6, 3}, DType::f32, device);
  if (weights) in.list = Tensor::zeros({2, 30}, DType::i32, device);
  const Tensor out = Tensor::zeros({2, 30, 4, 24}, type, device);
  const Tensor lse = Tensor::zeros(weights ? Shape{2, 4, 30, 3} : Shape{2, 4, 30}, DType::f32, device);
  ops::ListedAttentionGradients gradients{Tensor::empty_like(in.q), {}, {}, {}};
  if (weights) gradients.dweight = Tensor::empty_like(in.weight);
  if (with_keys) gradients.dkeys = Tensor::empty_like(in.keys);
  return peak_bytes(device, {[&] { ops::listed_attention(out, lse, {}, in); },
                             [&] { ops::listed_attention_backward(gradients, out, {}, out, lse, in); }});
}

TEST_F(CudaScratch, APlanTakesWhatListedAttentionTakes) {
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const int asked : {0, 1, 2}) {  // without weights, with them, and with the gradients of keys
      const auto scratch = [&](Device device) { return scratch_of_listed(type, asked > 0, asked > 1, device); };
      const Bytes taken = taken_and_told(scratch).first;
      EXPECT_EQ(taken[0] > 0, type == DType::bf16);
      EXPECT_EQ(taken[1] > 0, type == DType::bf16 || asked > 0);
    }
  }
}

Bytes scratch_of_delta(Device device) {
  ops::DeltaInputs in;
  in.q = Tensor::zeros({70, 2, 8}, DType::bf16, device);
  in.k = Tensor::zeros({70, 2, 8}, DType::bf16, device);
  in.v = Tensor::zeros({70, 4, 24}, DType::bf16, device);
  in.g = Tensor::zeros({70, 4, 8}, DType::f32, device);
  in.erase = Tensor::zeros({70, 4, 1}, DType::f32, device);
  in.write = Tensor::zeros({70, 4, 1}, DType::f32, device);
  in.state = Tensor::zeros({2, 4, 8, 24}, DType::f32, device);
  in.segments = device == kMeta ? Tensor::empty({2, 2}, DType::i32, kMeta)
                                : Tensor::from(std::vector<int32_t>{0, 30, 30, 40}, {2, 2}, device);
  const Tensor chunks = Tensor::zeros({ops::delta_chunks(70, 2), 4, 8, 24}, DType::f32, device);
  const auto like = [](const Tensor& x) { return Tensor::empty_like(x); };
  const ops::DeltaGradients to{like(in.q),     like(in.k),     like(in.v),    like(in.g),
                               like(in.erase), like(in.write), like(in.state)};
  return peak_bytes(device, {[&] { ops::delta_rule_backward(to, in.v, in.state, chunks, in); }});
}

TEST_F(CudaScratch, APlanTakesWhatTheDeltaRuleTakes) {
  EXPECT_GT(taken_and_told(scratch_of_delta).first[0], 0);
}

// Bytes that attention to codewords takes at most beside its operands, forwards and then backwards.
Bytes scratch_of_codes(int64_t value_size, Device device) {
  ops::CodeAttentionInputs in;
  in.q = Tensor::zeros({2, 70, 2, 16}, DType::bf16, device);
  in.u = Tensor::zeros({2, 16}, DType::f32, device);
  in.codebook = Tensor::zeros({1, 30, 16}, DType::f32, device);
  in.means = Tensor::zeros({2, 3, 1, 30, value_size}, DType::bf16, device);
  in.counts = Tensor::zeros({2, 4, 1, 30}, DType::f32, device);
  in.block = 30;
  const Tensor out = Tensor::zeros({2, 70, 2, value_size}, DType::bf16, device);
  const Tensor lse = Tensor::zeros({2, 2, 70}, DType::f32, device);
  const Tensor dq = Tensor::zeros(in.q.shape(), DType::bf16, device);
  const Tensor dmeans = Tensor::empty_like(in.means);
  return peak_bytes(device, {[&] { ops::code_attention(out, lse, in); },
                             [&] { ops::code_attention_backward(dq, Tensor(), dmeans, out, lse, lse, in); }});
}

TEST_F(CudaScratch, APlanTakesWhatTensorCoresTakeForCodes) {
  for (const int64_t value_size : {40, 136}) {
    const auto scratch = [&](Device device) { return scratch_of_codes(value_size, device); };
    // The copy of lse is in no plan. Without tensor cores values of 136 features take nothing.
    const Bytes told = taken_and_told(scratch, 2 * 2 * 70 * 4 + 4 * 64).second;
    for (const int64_t bytes : told) EXPECT_EQ(bytes > 0, value_size == 40);
  }
}

struct KnnCall {
  int64_t slots, top_k;
  DType type;
  ops::KnnSearch search = ops::KnnSearch::exact;
  bool in_host_memory = false;
};

// Bytes that a search takes at most beside its operands.
Bytes scratch_of_search(const KnnCall& call, Device device) {
  ops::KnnMemory memory;
  memory.keys = Tensor::zeros({2, call.slots, 2, 16}, call.type, device);
  memory.head = Tensor::zeros({2}, DType::i32, device);
  memory.length = Tensor::zeros({2}, DType::i32, device);
  memory.in_host_memory = call.in_host_memory;
  const Tensor q = Tensor::zeros({2, 3, 4, 16}, call.type, device);
  const Tensor index = Tensor::zeros({2, 3, 4, call.top_k}, DType::i32, device);
  const Tensor score = Tensor::zeros(index.shape(), DType::f32, device);
  return peak_bytes(device, {[&] { ops::knn_search(index, score, q, memory, call.search); }});
}

TEST_F(CudaScratch, APlanTakesWhatASearchTakes) {
  const KnnCall calls[] = {{.slots = 2100, .top_k = 5, .type = DType::f32},
                           {.slots = 2100, .top_k = 300, .type = DType::bf16},
                           {.slots = 2100, .top_k = 9, .type = DType::bf16, .search = ops::KnnSearch::bucketed},
                           {.slots = 700, .top_k = 9, .type = DType::bf16, .in_host_memory = true},
                           {.slots = 60, .top_k = 9, .type = DType::bf16, .in_host_memory = true}};
  for (const KnnCall& call : calls) {
    EXPECT_GT(taken_and_told([&](Device device) { return scratch_of_search(call, device); }).first[0], 0);
  }
}

}  // namespace
}  // namespace quire::test
