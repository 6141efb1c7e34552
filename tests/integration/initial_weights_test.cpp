// Tests runs that begin with the weights of another run.
#include "trainers/checkpoint/initial_weights.h"

#include <thread>

#include "core/ranks/in_process.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/inserting_stack.h"
#include "tests/support/tiny_run.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

std::map<std::string, Tensor> weights_of(const fs::path& checkpoint) {
  std::map<std::string, Tensor> weights;
  for (NamedTensor& tensor : CheckpointReader::open(checkpoint).read_part("model").tensors) {
    weights[tensor.name] = std::move(tensor.tensor);
  }
  return weights;
}

class InitialWeightsTest : public ::testing::Test {
 protected:
  InitialWeightsTest() {
    EXPECT_EQ(tiny_.train("source", {"schedule.steps=3", "model.position.kind=t5"}).code, 0);
    source_ = tiny_.checkpoint("source", 3);
  }
  RunConfig config(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"model.position.kind=t5", "init.from=" + source_.string()});
    return parse_config<RunConfig>(kTinyConfig, "tiny.yaml", settings);
  }
  // A model's weights after loading what it can.
  std::map<std::string, Tensor> loaded(const std::vector<std::string>& settings) const {
    const RunConfig run = config(settings);
    ParameterStore store;
    const Network network(store, run.model, ByteTokenizer().vocabulary_size(), DType::f32);
    store.allocate(DType::f32, kCpu, 77);
    InitialWeights::open(run, ByteTokenizer()).load(store);
    std::map<std::string, Tensor> weights;
    for (const ParameterStore::Entry& entry : store.entries()) weights[entry.name] = clone(entry.variable.value());
    return weights;
  }
  void expect_refused(const std::vector<std::string>& settings, ErrorKind kind, const std::string& message) const {
    EXPECT_ERROR(InitialWeights::open(config(settings), ByteTokenizer()), kind, message);
  }

  TinyRun tiny_;
  fs::path source_;
};

// The run that the weights come from goes on: it writes another checkpoint between the looks of two ranks.
TEST_F(InitialWeightsTest, AllRanksTakeTheCheckpointThatRankZeroHasChosen) {
  RunConfig run = config({});
  run.init.from = (tiny_ / "source").string();
  std::array<fs::path, 2> taken;
  run_in_process(2, [&](Ranks& ranks) {
    if (!ranks.is_root()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(tiny_.resume("source", {"schedule.steps=4"}).code, 0);
    }
    taken[static_cast<size_t>(ranks.rank())] = InitialWeights::open(run, ByteTokenizer(), ranks).checkpoint();
  });
  EXPECT_EQ(taken[0], taken[1]);
  EXPECT_EQ(InitialWeights::open(run, ByteTokenizer()).checkpoint(), tiny_.checkpoint("source", 4));
}

TEST_F(InitialWeightsTest, EveryWeightComesFromTheCheckpoint) {
  const std::map<std::string, Tensor> source = weights_of(source_);
  // Another cache, window, normalised or not: what has no weights may differ.
  const auto weights =
      loaded({"model.attention={softmax: {window: 30, carry: {kind: kv, length: 30}}}", "model.recompute=blocks"});
  ASSERT_EQ(weights.size(), source.size());
  for (const auto& [name, tensor] : source) EXPECT_TRUE(same_bits(weights.at(name), tensor)) << name;
}

TEST_F(InitialWeightsTest, ANewRunTrainsOnAndResumesWithoutTheSource) {
  const std::string from = "init.from=" + (tiny_ / "source").string();
  const std::vector<std::string> settings{"model.position.kind=t5", from, "schedule.steps=6", "checkpoint.every=3"};
  ASSERT_EQ(tiny_.train("tuned", settings).code, 0);
  // Its first loss is that of the trained weights, not that of new ones.
  const auto losses = [&](const char* run) { return comparable_metrics(tiny_ / run); };
  EXPECT_LT(losses("tuned").at(0)["loss"].get<double>(), losses("source").at(0)["loss"].get<double>() - 0.1);
  EXPECT_EQ(losses("tuned").at(0)["step"], 1);

  fs::copy(tiny_ / "tuned", tiny_ / "half", fs::copy_options::recursive);
  fs::remove_all(tiny_.checkpoint("half", 6));
  fs::remove_all(tiny_ / "source");
  const ProgramResult resumed = tiny_.resume("half");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_same_checkpoint(tiny_.checkpoint("half", 6), tiny_.checkpoint("tuned", 6));
  EXPECT_NE(read_text(tiny_ / "half" / "config.yaml").find("from:"), std::string::npos);

  const ProgramResult refused = tiny_.train("again", settings);
  EXPECT_EQ(refused.code, 4);
  EXPECT_FALSE(fs::exists(tiny_ / "again")) << "a run directory was left behind";
}

// A landmark in the loss has a logit too: the mean of those of the text.
TEST_F(InitialWeightsTest, InsertedTokensThatArePredictedBeginAtTheMean) {
  const std::vector<std::string> apart{"model.embedding={tied: false, output_bias: true}", "model.position.kind=t5",
                                       "schedule.steps=4"};
  ASSERT_EQ(tiny_.train("apart", apart).code, 0);
  const auto before = weights_of(tiny_.checkpoint("apart", 4));
  std::vector<std::string> settings = apart;
  settings.insert(settings.end(),
                  {"init.from=" + (tiny_ / "apart").string(), inserting({.period = 4, .ids = 1, .predicted = true})});
  const auto after = loaded(settings);
  EXPECT_EQ(after.size(), before.size() + 3);
  for (const auto& [inserted, of_text] :
       {std::pair{"head.inserted", "head.weight"}, {"head.inserted_bias", "head.bias"}}) {
    const std::vector<double> all = values_of(before.at(of_text));
    const std::vector<double> got = values_of(after.at(inserted));
    std::vector<double> mean(got.size(), 0.0);
    for (size_t i = 0; i < all.size(); ++i) mean[i % mean.size()] += all[i] / 258;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], mean[i], 1e-6) << inserted;
  }
}

// A trained model gets landmarks as in the paper: only the embedding of the landmark is new.
TEST_F(InitialWeightsTest, ASoftmaxModelIsGivenLandmarks) {
  const std::vector<std::string> rope{"model.position.kind=rope", "schedule.steps=40"};
  ASSERT_EQ(tiny_.train("rope", rope).code, 0);
  const std::vector<std::string> tuned{"model.position.kind=rope", "init.from=" + (tiny_ / "rope").string(),
                                       "model.attention={kind: landmark, landmark: {block: 4, top_k: 2}}",
                                       "schedule.steps=6"};
  ASSERT_EQ(tiny_.train("tuned", tuned).code, 0);
  const auto first_loss = [&](const char* run) { return comparable_metrics(tiny_ / run).at(0)["loss"].get<double>(); };
  EXPECT_LT(first_loss("tuned"), first_loss("rope") - 0.1);
  const auto before = weights_of(tiny_.checkpoint("rope", 40)), after = weights_of(tiny_.checkpoint("tuned", 6));
  ASSERT_EQ(after.size(), before.size() + 1);
  EXPECT_TRUE(after.contains("embedding.inserted"));
}

TEST_F(InitialWeightsTest, NewParametersAreNamed) {
  const std::map<std::string, Tensor> source = weights_of(source_);
  expect_refused({"model.attention.softmax.qk_norm=true"}, ErrorKind::checkpoint,
                 "has no blocks.0.attention.scale, blocks.1.attention.scale; name what is to be drawn anew in "
                 "init.missing, for example [\"blocks.0.attention.scale\"]");
  expect_refused({"model.attention.softmax.qk_norm=true", "init.missing=[blocks.0.*]"}, ErrorKind::checkpoint,
                 "has no blocks.1.attention.scale;");
  expect_refused({"model.attention.softmax.qk_norm=true", "init.missing=[\"*.scale\", \"*.scail\"]"}, ErrorKind::config,
                 "init.missing: '*.scail' names no parameter that the checkpoint does not have");
  const auto weights = loaded({"model.attention.softmax.qk_norm=true", "init.missing=[\"*.scale\"]"});
  EXPECT_EQ(weights.size(), source.size() + 2);
  EXPECT_EQ(weights.at("blocks.1.attention.scale").to_vector<float>(), (std::vector<float>{1, 1}));
  for (const auto& [name, tensor] : source) EXPECT_TRUE(same_bits(weights.at(name), tensor)) << name;
}

TEST_F(InitialWeightsTest, LeftOverParametersAreNamed) {
  expect_refused({"model.layers=1"}, ErrorKind::checkpoint,
                 "has blocks.1.attention.bias, blocks.1.attention.key.weight");
  expect_refused({"model.layers=1"}, ErrorKind::checkpoint, "and 5 more, which this model has not");
  expect_refused({"model.layers=1", "init.unused=[\"blocks.1.*\", \"blocks.2.*\"]"}, ErrorKind::config,
                 "init.unused: 'blocks.2.*' names no parameter that only the checkpoint has");
  EXPECT_EQ(loaded({"model.layers=1", "init.unused=[\"blocks.1.*\"]"}).size(), weights_of(source_).size() - 10);
}

TEST_F(InitialWeightsTest, OtherShapesAreBoth) {
  expect_refused({"model.mlp.hidden=32"}, ErrorKind::checkpoint,
                 "blocks.0.mlp.down.weight is [16, 24] there and [16, 32] here");
  const auto weights = loaded({"model.mlp.hidden=32", "init.missing=[\"*.mlp.*\"]", "init.unused=[\"*.mlp.*\"]"});
  EXPECT_TRUE(same_bits(weights.at("embedding.weight"), weights_of(source_).at("embedding.weight")));
}

// A checkpoint with other weights beside those of the source.
fs::path with_weights(const fs::path& source, const fs::path& folder, const std::vector<NamedTensor>& more) {
  const CheckpointReader reader = CheckpointReader::open(source);
  std::vector<CheckpointPart> parts{reader.read_part("model")};
  parts[0].tensors.insert(parts[0].tensors.end(), more.begin(), more.end());
  return write_checkpoint(
      folder, reader.step(), parts, reader.meta(),
      {{"config.yaml", reader.read_text("config.yaml")}, {"tokenizer.txt", reader.read_text("tokenizer.txt")}});
}

TEST_F(InitialWeightsTest, InsertedTokensBeginAsTheMeanOfTheVocabulary) {
  const std::map<std::string, Tensor> source = weights_of(source_);
  const std::vector<double> table = values_of(source.at("embedding.weight"));
  const auto weights = loaded({inserting({.period = 4, .ids = 3})});
  ASSERT_EQ(weights.size(), source.size() + 1);
  for (const auto& [name, tensor] : source) EXPECT_TRUE(same_bits(weights.at(name), tensor)) << name;
  const std::vector<double> inserted = values_of(weights.at("embedding.inserted"));
  ASSERT_EQ(inserted.size(), 3U * 16);
  for (size_t i = 0; i < inserted.size(); ++i) {
    double sum = 0;
    for (size_t row = 0; row < 258; ++row) sum += table[16 * row + i % 16];
    EXPECT_EQ(inserted[i], static_cast<float>(sum / 258)) << i;
  }
  // Named, they are drawn like any new parameter.
  const auto drawn = loaded({"init.missing=[embedding.inserted]", inserting({.period = 4, .ids = 3})});
  EXPECT_NE(values_of(drawn.at("embedding.inserted")), inserted);
  EXPECT_EQ(InitialWeights::open(config({inserting({.period = 4, .ids = 3})}), ByteTokenizer()).missing().size(), 0U);
}

TEST_F(InitialWeightsTest, OtherDifferencesOfInsertedTokensAreRefused) {
  const std::string three = inserting({.period = 4, .ids = 3});
  expect_refused({"model.attention.softmax.qk_norm=true", three}, ErrorKind::checkpoint,
                 "has no blocks.0.attention.scale");
  const Tensor two = Tensor::from(std::vector<float>(2 * 16, 0.5F), {2, 16});
  const std::string with_two =
      "init.from=" + with_weights(source_, tiny_ / "two", {{"embedding.inserted", two}}).string();
  expect_refused({with_two, three}, ErrorKind::checkpoint, "embedding.inserted is [2, 16] there and [3, 16] here");
  expect_refused({with_two}, ErrorKind::checkpoint, "has embedding.inserted, which this model has not");
  EXPECT_EQ(values_of(loaded({with_two, inserting({.period = 9, .ids = 2})}).at("embedding.inserted")), values_of(two));
}

TEST_F(InitialWeightsTest, PrecisionMayDiffer) {
  const RunConfig run = config({"run.precision=f64"});
  ParameterStore store;
  const Network network(store, run.model, ByteTokenizer().vocabulary_size(), DType::f64);
  store.allocate(DType::f64, kCpu, 77);
  InitialWeights::open(run, ByteTokenizer()).load(store);
  const std::map<std::string, Tensor> source = weights_of(source_);
  for (const ParameterStore::Entry& entry : store.entries()) {
    EXPECT_EQ(values_of(entry.variable.value()), values_of(source.at(entry.name))) << entry.name;
  }
}

TEST_F(InitialWeightsTest, AnotherTokenizerIsRefused) {
  const CheckpointReader reader = CheckpointReader::open(source_);
  const std::vector<CheckpointPart> parts{reader.read_part("model")};
  const fs::path other =
      write_checkpoint(tiny_ / "other", reader.step(), parts, reader.meta(),
                       {{"config.yaml", reader.read_text("config.yaml")}, {"tokenizer.txt", "letters\nabc"}});
  expect_refused({"init.from=" + other.string()}, ErrorKind::checkpoint,
                 "its tokenizer (letters) is not that of data.corpus (byte)");
}

TEST_F(InitialWeightsTest, BadUseIsRefused) {
  EXPECT_ERROR(parse_config<RunConfig>(kTinyConfig, "tiny.yaml", {"init.missing=[a]"}), ErrorKind::config,
               "init.missing: has no meaning without init.from");
  EXPECT_ERROR(parse_config<RunConfig>(kTinyConfig, "tiny.yaml", {"init.unused=[a]"}), ErrorKind::config,
               "init.unused: has no meaning without init.from");
  expect_refused({"init.from=" + (tiny_ / "nothing").string()}, ErrorKind::checkpoint, "nothing");
  const ProgramResult resumed = tiny_.resume("source", {"init.from=elsewhere"});
  EXPECT_EQ(resumed.code, 2) << resumed.err;
}

}  // namespace
}  // namespace quire::test
