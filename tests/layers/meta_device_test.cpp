// Models of the papers' size on the meta device: shapes and bytes without memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "layers/state/state_pool.h"
#include "tests/support/document_rows.h"
#include "trainers/optimizer/optimizer.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

constexpr int64_t kVocabulary = 32000;
constexpr int64_t kRows = 8;

constexpr const char* kPaper = R"(
data: {subsequence: 512, rows: 8}
model:
  width: 1024
  layers: 18
  heads: 16
  mlp: {kind: swiglu, hidden: 2752}
  dropout: {embedding: 0.1, attention: 0.1, mlp: 0.1, residual: 0.1, output: 0.1}
)";

AllocatorStats stats(Device device) {
  return device_backend(device.kind).allocator().stats();
}

int64_t max_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

class MetaDevice : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(MetaDevice, WholeStepsOfAPaperScaleModel) {
  const RunConfig config = parse_config<RunConfig>(kPaper, "paper.yaml", GetParam());
  const int64_t length = config.data.subsequence;
  const AllocatorStats cpu_before = stats(kCpu);
  const int64_t resident_before = max_resident_bytes();
  device_backend(DeviceKind::meta).allocator().reset_peak();

  ParameterStore store;
  const Network network(store, config.model, kVocabulary, DType::f32);
  store.allocate(DType::f32, kMeta, 1);
  const ParameterParts parts(store, {}, cut_of(config.optimizer));
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(store, parts, config.optimizer);
  StatePool state(network.declared.state, kRows, length, DType::f32, kMeta);
  const std::vector<std::vector<int64_t>> lengths(static_cast<size_t>(kRows), {length + 100, length});
  const std::vector<Batch> batches = cut(random_documents(lengths, kVocabulary, 1), length, Pack::concat);
  for (size_t step = 0; step < 2; ++step) {
    state.begin_step(batches[step]);
    store.zero_gradients();
    Tape tape;
    const StateView view = state.view(0, kRows);
    const LossTerms loss =
        network.model.loss({.tape = tape, .batch = batches[step], .state = view, .key = {}, .training = true});
    tape.backward({{loss.terms[0].sum, 1.0}});
    optimizer->update(static_cast<int64_t>(step) + 1, 1e-3, Tensor::empty({2}, DType::f64, kMeta));
    state.commit();
  }

  const AllocatorStats cpu = stats(kCpu);
  EXPECT_EQ(cpu.bytes_in_use, cpu_before.bytes_in_use);
  EXPECT_EQ(cpu.bytes_from_system, cpu_before.bytes_from_system);
  EXPECT_EQ(cpu.peak_bytes, cpu_before.peak_bytes);
  // Weights, gradients and two moments alone would be more than 4 GB.
  EXPECT_LT(max_resident_bytes() - resident_before, int64_t{256} << 20);
  // All of them, and at least the residual streams that the sweep needs, were counted.
  const int64_t activations = config.model.layers * 2 * kRows * length * config.model.width * 4;
  EXPECT_GT(stats(kMeta).peak_bytes, 4 * 4 * store.parameter_count() + activations);
}

TEST(MetaDeviceCount, BuffersLiveWhereTheWeightsDo) {
  ParameterStore store;
  ParameterStore::Buffer* buffer = store.buffer("counts", {3}, DType::f32, Initializer::constant(1));
  store.allocate(DType::f32, kMeta, 1);
  EXPECT_TRUE(buffer->value.is_meta());
}

TEST(MetaDeviceCount, ParametersOfAPaperScaleModel) {
  const RunConfig config = parse_config<RunConfig>(kPaper, "paper.yaml");
  ParameterStore store;
  const Network network(store, config.model, kVocabulary, DType::f32);
  store.allocate(DType::f32, kMeta, 1);
  const int64_t width = 1024;
  const int64_t layer = 5 * width * width + 3 * width * 2752 + 2 * width;  // q, k, v, out, relative; mlp; two norms
  EXPECT_EQ(store.parameter_count(), kVocabulary * width + 18 * layer + width + 2 * width);  // last norm, u and v
}

INSTANTIATE_TEST_SUITE_P(
    Mechanisms, MetaDevice,
    ::testing::Values(std::vector<std::string>{"model.attention.softmax.carry={kind: hidden, length: 512}"},
                      std::vector<std::string>{"model.position.kind=t5", "model.attention.softmax.qk_norm=true",
                                               "model.attention.softmax.window=384",
                                               "model.attention.softmax.carry={kind: kv}"},
                      std::vector<std::string>{"model.position.kind=none", "model.norm={kind: layer, placement: post}",
                                               "model.mlp={kind: gelu, hidden: 4096, bias: true}",
                                               "model.embedding.tied=false"}));

}  // namespace
}  // namespace quire::test
