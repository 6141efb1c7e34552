// Imports every model of a folder in both forms of config.json, and every variant of its configuration, and compares
// logits and nats with an independent reference.
#include <fmt/format.h>

#include <cmath>

#include "core/files/hdf5_file.h"
#include "layers/state/state_pool.h"
#include "tests/exchange/exchange_folder.h"
#include "trainers/checkpoint/loaded_model.h"
#include "trainers/exchange/import.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Rounding of the reference to f32, and of f32 arithmetic over a few hundred terms, at logits of up to 24.
constexpr double kToleranceF64 = 5e-6;
constexpr double kToleranceF32 = 3e-4;

std::vector<double> values(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  const std::vector<float> narrow = tensor.to_vector<float>();
  return {narrow.begin(), narrow.end()};
}

double difference(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double one = std::abs(got[i] - expected[i]);
    worst = one <= worst ? worst : one;  // a NaN counts
    if (std::isnan(one)) return INFINITY;
  }
  return worst;
}

// One document that fills one subsequence.
Batch batch_of_ids(const std::vector<int32_t>& ids) {
  const auto length = static_cast<int64_t>(ids.size());
  Batch batch = Batch::empty(1, length);
  batch.tokens = ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.segment[i] = 0;
    batch.document[i] = 0;
    batch.position[i] = static_cast<int32_t>(i);
    batch.loss_mask[i] = i + 1 < ids.size() ? 1 : 0;
    batch.targets[i] = i + 1 < ids.size() ? ids[i + 1] : 0;
  }
  batch.starts[0] = 1;
  batch.target_count = length - 1;
  return batch;
}

class ImportedModel {
 public:
  ImportedModel(const fs::path& folder, const fs::path& run, const std::vector<int32_t>& ids, const char* precision)
      : batch_(batch_of_ids(ids)) {
    import_model({.folder = folder,
                  .output = run,
                  .tokenizer = "ids",
                  .length = static_cast<int64_t>(ids.size()),
                  .overrides = {fmt::format("run.precision={}", precision), "run.device=cpu", "run.threads=1",
                                fmt::format("data.subsequence={}", ids.size())}});
    const CheckpointReader reader = open_checkpoint(resolve_checkpoint(run));
    model_ = std::make_unique<LoadedModel>(reader, evaluation_config(checkpoint_config(reader)), Weights::trained);
    network_ = std::make_unique<Network>(model_->store(), model_->config().model, model_->tokenizer().vocabulary_size(),
                                         model_->machine().dtype);
    state_ = std::make_unique<StatePool>(network_->declared.state, 1, batch_.length, model_->machine().dtype, kCpu);
  }
  std::vector<double> nll() {
    std::vector<double> all = pass([&](const Forward& f) { return values(network_->model.score(f, {}).nll); });
    all.pop_back();
    return all;
  }
  std::vector<double> logits(int64_t at) {
    return pass([&](const Forward& f) { return values(network_->model.next_logits(f, at)); });
  }

 private:
  std::vector<double> pass(const std::function<std::vector<double>(const Forward&)>& use) {
    state_->begin_step(batch_);
    const StateView view = state_->view(0, 1);
    Tape tape(false);
    return use({.tape = tape, .batch = batch_, .state = view, .write_state = false});
  }

  Batch batch_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<StatePool> state_;
};

class GoldenModel {
 public:
  explicit GoldenModel(const fs::path& folder)
      : folder_(folder), file_(Hdf5Reader::open_file(folder / "golden.h5")), ids_(integers("ids")) {}

  void check_config(const std::string& config, double tolerance, const char* precision) {
    TemporaryDirectory temporary(TemporaryDirectory::fast_parent());
    link_model(folder_, temporary / "model", read_all(folder_ / config));
    ImportedModel model(temporary / "model", temporary / "run", ids_, precision);
    EXPECT_LE(difference(model.nll(), values(file_.get("nll"))), tolerance);
    const std::vector<int32_t> at = integers("at");
    const Tensor logits = file_.get("logits");
    double worst = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      const Tensor row = logits.select(0, static_cast<int64_t>(i));
      worst = std::max(worst, difference(model.logits(at[i]), values(row)));
    }
    EXPECT_LE(worst, tolerance);
    fmt::print("{} {} {}: {:.1e}\n", folder_.filename().string(), config, precision, worst);
  }
  void check_variant(const std::string& variant, const std::string& form, double tolerance, const char* precision) {
    const std::string group = "variants/" + variant;
    TemporaryDirectory temporary(TemporaryDirectory::fast_parent());
    link_model(folder_, temporary / "model", file_.attribute_text(group, form));
    ImportedModel model(temporary / "model", temporary / "run", ids_, precision);
    EXPECT_LE(difference(model.nll(), values(file_.get(group + "/nll"))), tolerance);
    const double worst =
        difference(model.logits(static_cast<int64_t>(ids_.size()) - 1), values(file_.get(group + "/logits_last")));
    EXPECT_LE(worst, tolerance);
    fmt::print("{} {} {} {}: {:.1e}\n", folder_.filename().string(), variant, form, precision, worst);
  }
  std::vector<std::string> variants() const {
    return file_.has("variants") ? file_.list("variants") : std::vector<std::string>();
  }
  bool has_form(const std::string& variant, const std::string& form) const {
    return file_.has_attribute("variants/" + variant, form);
  }

 private:
  std::vector<int32_t> integers(const std::string& name) const {
    const Tensor tensor = file_.get(name);
    if (tensor.dtype() == DType::i32) return tensor.to_vector<int32_t>();
    const std::vector<int64_t> wide = tensor.to_vector<int64_t>();
    return {wide.begin(), wide.end()};
  }

  fs::path folder_;
  Hdf5Reader file_;
  std::vector<int32_t> ids_;
};

class GoldenExchange : public ::testing::TestWithParam<fs::path> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenExchange);

TEST_P(GoldenExchange, HasTheLogitsAndNatsOfTheReference) {
  GoldenModel model(GetParam());
  for (const char* config : {"config.json", "config.alt.json"}) {
    if (!fs::exists(GetParam() / config)) continue;
    SCOPED_TRACE(config);
    EXPECT_NO_THROW(model.check_config(config, kToleranceF64, "f64"));
    EXPECT_NO_THROW(model.check_config(config, kToleranceF32, "f32"));
  }
}

TEST_P(GoldenExchange, HasThoseOfEveryVariantOfItsConfiguration) {
  GoldenModel model(GetParam());
  for (const std::string& variant : model.variants()) {
    for (const char* form : {"config", "config_older"}) {
      if (!model.has_form(variant, form)) continue;
      SCOPED_TRACE(variant + " " + form);
      EXPECT_NO_THROW(model.check_variant(variant, form, kToleranceF64, "f64"));
      EXPECT_NO_THROW(model.check_variant(variant, form, kToleranceF32, "f32"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenExchange, ::testing::ValuesIn(exchange_models()),
                         [](const auto& tested) { return tested.param.filename().string(); });

TEST(GoldenExchange, ThereAreModels) {
  EXPECT_FALSE(exchange_models().empty()) << exchange_folder();
}

}  // namespace
}  // namespace quire::test
