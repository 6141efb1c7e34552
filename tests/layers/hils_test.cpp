// HiLS attention where it is known what comes out; tests/golden has the published formulas.
#include <gtest/gtest.h>

#include "layers/config/model_config.h"
#include "layers/mixers/hils_heads.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/document_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/random_tensor.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

// Reads one document of 23 slots in chunks of 4.
HilsMix read_document(const HilsConfig& config) {
  constexpr int64_t kSlots = 23;
  const HilsShape shape{4, 2, 3, 5};
  const HilsChunks chunks(config, 1, kSlots, {{.row = 0, .begin = 0, .count = kSlots, .slot = 0}});
  const HilsTables tables =
      chunks.tables(kCpu, shape.key_heads, [](const std::string&, const auto& make) { return make(); });
  RandomTensors random(7);
  HilsInput in;
  in.q = Variable::constant(random.normal({1, kSlots, shape.heads, shape.size}));
  in.k = Variable::constant(random.normal({1, kSlots, shape.key_heads, shape.size}));
  in.v = Variable::constant(random.normal({1, kSlots, shape.key_heads, shape.value_size}));
  in.score_q = in.q;
  in.scale = 0.5;
  Tape idle(false);
  return hils_mix(idle, config, shape, tables, in);
}

HilsConfig small_config() {
  HilsConfig config;
  config.chunk = 4;
  config.window = 3;
  config.top_k = 9;
  config.softmax_one = false;
  return config;
}

TEST(Hils, AllChunksWithTheirTrueSumsAreFullAttention) {
  HilsConfig sparse = small_config(), full = sparse;
  sparse.summary = HilsSummary::exact;
  full.window = 40;
  full.window_only = true;
  EXPECT_LE(relative_error(read_document(sparse).out.value(), read_document(full).out.value()), 1e-13);
}

TEST(Hils, ScoresNeverExceedTheTrueSums) {
  HilsConfig config = small_config(), exact = config;
  exact.summary = HilsSummary::exact;
  const std::vector<double> scores = values_of(read_document(config).scores.value());
  const std::vector<double> sums = values_of(read_document(exact).scores.value());
  ASSERT_EQ(scores.size(), sums.size());
  for (size_t i = 0; i < scores.size(); ++i) EXPECT_LE(scores[i], sums[i] + 1e-12);
}

TEST(Hils, SlowPairsAreNotRotated) {
  const std::vector<double> all{1, 0.5, 0.1, 0.01};
  EXPECT_EQ(hils_frequencies(all, {}, 2), all);
  // Two turns within 100 positions are 0.126 a position.
  EXPECT_EQ(hils_frequencies(all, 100, 2), (std::vector<double>{1, 0.5, 0, 0}));
  EXPECT_EQ(hils_frequencies(all, 1, 2), (std::vector<double>{1, 0, 0, 0}));
}

// Summaries are sums in f32, and stay what they are where a run computes in bf16. A step of it on the meta device shows
// that the types of its operations fit.
TEST(Hils, SummariesAreStoredInF32) {
  const auto config = parse_config<ModelConfig>(
      "{width: 8, heads: 2, layers: 1, mlp: {hidden: 8}, position: {kind: rope}, attention: {kind: hils, hils: {chunk: "
      "4, window: 4, top_k: 2, carry: {length: 8}}}}",
      "model.yaml");
  ParameterStore store;
  const Network network(store, config, 50, DType::bf16);
  store.allocate(DType::bf16, kMeta, 1);
  StatePool pool(network.declared.state, 1, 8, DType::bf16, kMeta);
  for (const Batch& batch : cut(random_documents({{32}}, 50, 1), 8, Pack::concat)) {
    pool.begin_step(batch);
    Tape tape;
    const LossTerms loss =
        network.model.loss({.tape = tape, .batch = batch, .state = pool.view(0, 1), .training = true});
    tape.backward({{loss.terms[0].sum, 1.0}});
    pool.commit();
  }
  for (const RowPart& part : pool.row_parts()) {
    const bool summary = part.name.find(".summaries.") != std::string::npos;
    EXPECT_EQ(part.dtype, summary ? DType::f32 : DType::bf16) << part.name;
  }
}

TEST(Hils, RefusesOptionsThatMeanNothing) {
  const auto parse = [](const std::string& options) {
    return parse_config<ModelConfig>(
        "width: 8\nheads: 2\nlayers: 2\nposition: {kind: rope}\nattention: {kind: hils, hils: {" + options + "}}\n",
        "model.yaml");
  };
  for (const auto& [options, message] : std::vector<std::pair<std::string, std::string>>{
           {"window: 200, chunk: 8, carry: {length: 9}", "reaches into 25"},
           {"window_only: true, top_k: 3", "window_only reads no chunks"},
           {"score_query: none, rank: 3", "only score_query: low_rank"},
           {"summary: exact, score_query: full", "compares the query itself"},
           {"summary: landmark, landmark_query: shared", "no such query"},
           {"rope_turns: 3", "all pairs are rotated"},
           {"carry: {dtype: int4}", "expects one of auto, f32, bf16, int8, fp8"},
           {"chunk: 1", "chunk"}}) {
    EXPECT_ERROR(parse(options), ErrorKind::config, message);
  }
  EXPECT_NO_THROW(parse("chunk: 2, window: 1, top_k: 1"));
}

}  // namespace
}  // namespace quire::test
