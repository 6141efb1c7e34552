// The trivial mechanisms by hand: one head of size one, two rows of three positions.
#include "tests/support/trivial_memories.h"

#include <gtest/gtest.h>

#include "layers/mechanism/mechanism_registry.h"
#include "layers/memory/memory.h"
#include "layers/parameters/scope.h"
#include "layers/state/state_pool.h"
#include "tests/support/document_rows.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

class TrivialMemoryTest : public ::testing::Test {
 protected:
  void make(const std::string& kind, const std::string& more = "") {
    register_trivial_memories();
    Declarations declared;
    const RunConfig config =
        parse_config<RunConfig>("model: {width: 1, heads: 1, layers: 1, position: {kind: none}}\n", "model.yaml",
                                {"model.memory=[{kind: " + kind + ", layers: [0]" + more + "}]"});
    const LayerConfig layer = config.model.layer_configs()[0];
    const KindConfig& chosen = config.model.memory[0].mechanism;
    memory =
        mechanism(Role::memory, kind)
            .make_memory(Scope(store, declared, DType::f64, "m"), {config.model, layer, chosen.options}, {1, 1, 1, 1});
    store.allocate(DType::f64, kCpu, 1);
    store.values().slice(0, 0, 1).upload(std::vector<double>{2}.data(), 1);  // the weight
    pool = std::make_unique<StatePool>(declared.state, 2, 3, DType::f64, kCpu);
  }

  // Values are the tokens, local output is 100: what comes out is 100 + 2 * mean.
  std::vector<double> step(const Batch& batch) {
    pool->begin_step(batch);
    Tape tape(false);
    const StateView view = pool->view(0, 2);
    const std::vector<double> tokens(batch.tokens.begin(), batch.tokens.end());
    const Variable v = Variable::constant(Tensor::from(tokens, {2, 3, 1, 1}));
    const Variable local = Variable::constant(Tensor::from(std::vector<double>(6, 100), {2, 3, 1, 1}));
    const Variable out = memory->combine({.tape = tape, .batch = batch, .state = view},
                                         {.z = {}, .q = v, .scaled_q = v, .k = v, .v = v, .local = local});
    pool->commit();
    return out.value().to_vector<double>();
  }

  ParameterStore store;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<StatePool> pool;
};

using Values = std::vector<double>;

// Row 0: a document of eight positions. Row 1: a document of four, then one of three.
std::vector<Batch> batches() {
  return cut({{{1, 2, 3, 4, 5, 6, 7, 8, 0}}, {{10, 20, 30, 40, 0}, {50, 60, 70, 0}}}, 3, Pack::concat);
}

TEST_F(TrivialMemoryTest, RegisterReadsTheMeanOfTheDocumentSoFar) {
  make("trivial_register");
  const std::vector<Batch> steps = batches();
  EXPECT_EQ(step(steps[0]), (Values{100, 100, 100, 100, 100, 100}));
  // Row 1: 40 belongs to the first document, which carried 10, 20, 30; 50 and 60 begin another.
  EXPECT_EQ(step(steps[1]), (Values{104, 104, 104, 140, 100, 100}));
  // Row 0 ends with padding, row 1 with one position of the second document.
  EXPECT_EQ(step(steps[2]), (Values{107, 107, 100, 210, 100, 100}));
}

TEST_F(TrivialMemoryTest, LogReadsTheMeanOfItsLastEntries) {
  make("trivial_log", ", size: 4");
  const std::vector<Batch> steps = batches();
  EXPECT_EQ(step(steps[0]), (Values{100, 100, 100, 100, 100, 100}));
  EXPECT_EQ(step(steps[1]), (Values{104, 104, 104, 140, 100, 100}));
  EXPECT_EQ(step(steps[2]), (Values{109, 109, 100, 210, 100, 100}));
}

}  // namespace
}  // namespace quire::test
