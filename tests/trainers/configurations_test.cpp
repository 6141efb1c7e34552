// Every configuration that comes with the project loads, and its model can be laid out.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "layers/state/state_pool.h"
#include "trainers/setup/evaluation_config.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> configurations() {
  std::vector<std::string> names;
  const fs::path folder = fs::path(QUIRE_SOURCE_DIR) / "configs";
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") names.push_back(fs::relative(entry.path(), folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

RunConfig load(const std::string& name) {
  return load_config<RunConfig>((fs::path(QUIRE_SOURCE_DIR) / "configs" / name).string());
}

// Parameters of the model with a vocabulary, laid out on the counting device: nothing of that size is allocated.
int64_t parameters_of(const ModelConfig& model, int64_t vocabulary) {
  ParameterStore store;
  const Network network(store, model, vocabulary, DType::f32);
  store.allocate(DType::f32, kMeta, 1);
  return store.parameter_count();
}

class Configurations : public ::testing::TestWithParam<std::string> {};

TEST_P(Configurations, LoadsAndCanBeLaidOut) {
  const RunConfig config = load(GetParam());
  const RunConfig evaluation = evaluation_config(config);
  ParameterStore store;
  const Network network(store, config.model, 258, DType::f32);
  store.allocate(DType::f32, kMeta, 1);
  const Network second(store, evaluation.model, 258, DType::f32);
  EXPECT_GT(store.parameter_count(), 0);
  // One row is enough to see that the state can be made.
  const StateLayout& state = network.declared.state;
  const bool carries = !state.registers().empty() || !state.logs().empty();
  EXPECT_EQ(StatePool(state, 1, config.data.subsequence, DType::f32, kMeta).bytes() > 0, carries);
  EXPECT_EQ(parse_config<RunConfig>(dump_config(config), GetParam()).run.name, config.run.name);
}

INSTANTIATE_TEST_SUITE_P(, Configurations, ::testing::ValuesIn(configurations()), [](const auto& tested) {
  std::string name = tested.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

TEST(PaperConfigurations, HaveThePublishedSizes) {
  const auto millions = [](const std::string& name, int64_t vocabulary) {
    return static_cast<double>(parameters_of(load(name).model, vocabulary)) / 1e6;
  };
  EXPECT_NEAR(millions("papers/transformer-xl-enwik8.yaml", 204), 41, 0.5);
  // Published as 190 million and 1.3 billion; codebooks are buffers and not counted.
  EXPECT_NEAR(millions("papers/transformer-vq-enwik8.yaml", 258), 184.5, 0.5);
  EXPECT_NEAR(millions("papers/transformer-vq-pg19.yaml", 32002), 1311, 1);
  EXPECT_NEAR(millions("papers/memorizing-transformer.yaml", 32002), 184, 1);
  // Published as 345 million with the 100278 ids of its tokenizer.
  EXPECT_NEAR(millions("papers/hils-345m.yaml", 100278), 344, 1);
  EXPECT_NEAR(millions("papers/drt-baseline-window-alibi.yaml", 50265), 124, 1);
}

}  // namespace
}  // namespace quire::test
