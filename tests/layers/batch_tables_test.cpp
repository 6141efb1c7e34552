// Tables that layers derive from a batch are made once a pass, however many layers read them.
#include "layers/pass/batch_tables.h"

#include <gtest/gtest.h>

#include <map>

#include "layers/model/language_model.h"
#include "layers/state/state_pool.h"
#include "tests/support/hand_batch.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 8;

// The tables of one pass, forward and backward, of a model over a batch in which a document begins inside a row.
int64_t tables_of(std::vector<std::string> settings) {
  settings.insert(settings.begin(), {"model.width=8", "model.heads=2"});
  const RunConfig config = parse_config<RunConfig>("model: {mlp: {hidden: 8}}", "model.yaml", settings);
  ParameterStore store;
  Declarations declared;
  const LanguageModel model(Scope(store, declared, DType::f32), config.model, 16);
  store.allocate(DType::f32, kCpu, 1);
  StatePool pool(declared.state, kRows, kTokens, DType::f32, kCpu);
  Batch batch = batch_of({{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, -1}}, {0, 0});
  pool.begin_step(batch);
  Tape tape;
  const Forward f{.tape = tape, .batch = batch, .state = pool.view(0, kRows), .training = false};
  tape.backward({{model.loss(f).terms[0].sum, 1.0}});
  return f.tables->size();
}

TEST(BatchTables, LayersThatAreEqualShareThem) {
  const std::vector<std::vector<std::string>> all{
      {"model.position.kind=none"},
      {"model.position.kind=t5", "model.attention.softmax.carry={kind: kv, length: 4}"},
      {"model.position.kind=xl", "model.attention.softmax.carry={kind: hidden, length: 4}"},
      {"model.position.kind=alibi",
       "model.attention={kind: vq, vq: {window: 4, block: 4, codes: 4, cache_gradient: false}}"},
      {"model.position.kind=rope"},  // and a memory
  };
  const std::vector<int64_t> expected{1, 2, 1, 4, 2};
  const std::map<std::string, std::string> memories{{"1", "[0]"}, {"4", "[0, 1, 2, 3]"}};
  for (size_t i = 0; i < all.size(); ++i) {
    for (const char* recompute : {"none", "blocks"}) {
      for (const auto& [layers, numbers] : memories) {
        std::vector<std::string> settings = all[i];
        settings.push_back("model.layers=" + layers);
        settings.push_back(std::string("model.recompute=") + recompute);
        if (i == 4)
          settings.push_back("model.memory=[{kind: knn, layers: " + numbers + ", carry: {length: 6}, top_k: 2}]");
        EXPECT_EQ(tables_of(settings), expected[i])
            << all[i][0] << ", " << layers << " layers, recompute " << recompute;
      }
    }
  }
}

TEST(BatchTables, LayersThatDifferHaveTheirOwn) {
  EXPECT_EQ(tables_of({"model.position.kind=none", "model.layers=4",
                       "model.layer_overrides=[{layers: [0, 2], attention: {softmax: {window: 3}}}]"}),
            2);
}

}  // namespace
}  // namespace quire::test
