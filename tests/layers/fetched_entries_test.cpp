// Tests what a layer reads of logs that lie in host memory.
#include "layers/carried/fetched_entries.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/config/config.h"
#include "layers/model/model_mechanisms.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/document_rows.h"
#include "tests/support/hand_batch.h"
#include "tests/support/model_reader.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

// Rows of four slots with entries 10 r + slot.
class StoredEntries : public ::testing::TestWithParam<LogPlace> {
 protected:
  StoredEntries() {
    group_ = layout_.add_log_group("blocks", 4, {.place = GetParam(), .waits = true});
    log_ = layout_.add_log(group_, "keys", {2});
    pool_.emplace(layout_, 2, 4, DType::f64, test_device());
    pool_->begin_step(one_segment(2, 4, {1, 1}));
    std::vector<double> values;
    for (const double first : {0.0, 10.0}) {
      for (int slot = 0; slot < 4; ++slot) values.insert(values.end(), {first + slot, -first - slot});
    }
    pool_->view(0, 2).append(log_, Tensor::from(values, {2, 4, 2}, test_device()));
    pool_->commit();
  }

  StateLayout layout_;
  LogGroupId group_;
  LogId log_;
  std::optional<StatePool> pool_;
};

TEST_P(StoredEntries, AreReadWhereTheyWereFetchedTo) {
  const std::vector<int32_t> chosen{3, -1, 1, 2, 3, 7, 4, 7};
  const StateView view = pool_->view(0, 2);
  const FetchedEntries fetched = fetch_entries(view, {{log_, {}}}, Tensor::from(chosen, {2, 2, 2}, test_device()));
  await_fetched(test_device());
  EXPECT_EQ(fetched.slot.shape(), (Shape{2, 2, 2}));
  const std::vector<int32_t> slot = fetched.slot.to_vector<int32_t>();
  const std::vector<double> entries = fetched.logs.at(0).to_vector<double>();
  for (size_t i = 0; i < chosen.size(); ++i) {
    ASSERT_EQ(slot[i] < 0, chosen[i] < 0);
    if (slot[i] < 0) continue;
    const int32_t row = chosen[i] / 4;
    const double expected = row * 10 + chosen[i] % 4;
    EXPECT_EQ(entries[2 * static_cast<size_t>(slot[i])], expected);
    EXPECT_EQ(entries[2 * static_cast<size_t>(slot[i]) + 1], -expected);
  }
  // Once each, whoever has chosen them.
  const bool copied = GetParam() == LogPlace::host && !(test_device() == kCpu);
  EXPECT_EQ(fetched.logs[0].dim(0), copied ? 5 : 8);
}

TEST_P(StoredEntries, MayBeChosenByNobody) {
  const Tensor chosen = Tensor::from(std::vector<int32_t>{-1, -1}, {2, 1}, test_device());
  const FetchedEntries fetched = fetch_entries(pool_->view(0, 2), {{log_, {}}}, chosen);
  await_fetched(test_device());
  EXPECT_EQ(fetched.slot.to_vector<int32_t>(), (std::vector<int32_t>{-1, -1}));
}

INSTANTIATE_TEST_SUITE_P(Places, StoredEntries, ::testing::Values(LogPlace::device, LogPlace::host),
                         [](const auto& place) { return place.param == LogPlace::host ? "host" : "device"; });

// Each chosen entry comes once, in the type that the model computes in.
TEST_P(StoredEntries, WithScalesAreDequantized) {
  StateLayout layout;
  const LogGroupId group = layout.add_log_group("blocks", 4, {.place = GetParam(), .waits = true});
  const VectorLog vectors{layout.add_log(group, "keys", {2, 3}, DType::i8),
                          layout.add_log(group, "keys.scale", {2}, DType::bf16)};
  StatePool pool(layout, 2, 4, DType::f64, test_device());
  pool.begin_step(one_segment(2, 4, {1, 1}));
  std::vector<double> values;
  for (int i = 0; i < 2 * 4 * 2; ++i) values.insert(values.end(), {127.0 * i, i - 5.0 * i, 0});
  const std::vector<int64_t> none{0, 0}, all{4, 4};
  store_vectors(pool.view(0, 2), vectors, Tensor::from(values, {2, 4, 2, 3}, test_device()),
                [&](LogId log, const Tensor& x) { pool.view(0, 2).append(log, x, none, all); });
  pool.commit();
  const std::vector<int32_t> chosen{6, -1, 1, 6};
  const FetchedEntries fetched = fetch_entries(pool.view(0, 2), {vectors, vectors},
                                               Tensor::from(chosen, {2, 2}, test_device()), FetchAs::computed);
  const std::vector<int32_t> slot = fetched.slot.to_vector<int32_t>();
  ASSERT_FALSE(fetched.scales[1].defined());
  ASSERT_EQ(fetched.logs[1].shape(), (Shape{2, 2, 3}));
  const std::vector<double> got = fetched.logs[1].to_vector<double>();
  for (size_t i = 0; i < chosen.size(); ++i) {
    ASSERT_EQ(slot[i] < 0, chosen[i] < 0);
    for (size_t d = 0; d < 6 && slot[i] >= 0; ++d) {
      EXPECT_EQ(got[static_cast<size_t>(slot[i]) * 6 + d], values[static_cast<size_t>(chosen[i]) * 6 + d]);
    }
  }
}

// Returns the losses of two steps and the gradients of the third.
std::pair<DocumentNll, std::vector<double>> trained(const ModelConfig& config) {
  const std::vector<Batch> batches = with_inserted(
      cut(random_documents({{24}, {17}}, 11, 1), 6, Pack::pad, alignment_of(config)), insertion_of(config), 11);
  ModelReader reader(config, 11, 2, 6);
  reader.training = true;
  DocumentNll losses = reader.read({batches.begin(), batches.begin() + 2});
  reader.gradient(batches.at(2));
  return {losses, reader.store().gradients().to_vector<double>()};
}

// Losses and gradients of every mechanism that stores blocks or chunks have the same bits wherever these lie; in 8 bits
// they are close to those of blocks that are not rounded, on a GPU as on the CPU.
TEST(StoredBlocks, AreReadTheSameWhereverTheyLie) {
  const std::string model = "{width: 16, layers: 2, heads: 2, mlp: {hidden: 24}, position: {kind: ";
  for (const std::string& settings :
       {model + "rope}, attention: {kind: landmark, landmark: {block: 2, top_k: 2, carry: {in_training: true, ",
        model + "rope}, attention: {kind: moba, moba: {block: 2, top_k: 3, carry: {",
        model + "rope}, attention: {kind: hils, hils: {chunk: 3, window: 2, top_k: 2, carry: {",
        model + "alibi}, attention: {softmax: {window: 4}}, stack: {kind: drt, drt: {chunk: 2, top_k: 2, groups: 1, "
                "encoder_layers: 1, carry: {"}) {
    const auto with = [&](const std::string& carry) {
      return trained(parse_config<ModelConfig>(settings + "length: 6, " + carry + "}}}}", "model.yaml"));
    };
    const auto whole = with("place: device");
    for (const auto& [dtype, error] :
         {std::pair{"auto", 0.0}, std::pair{"f32", 1e-5}, std::pair{"int8", 0.02}, std::pair{"fp8", 0.1}}) {
      SCOPED_TRACE(settings + dtype);
      const auto on_device = with(fmt::format("dtype: {}, place: device", dtype));
      const bool rounded = error > 0;
      EXPECT_EQ(on_device != whole, rounded);
      EXPECT_LE(relative_error(Tensor::from(on_device.second, {std::ssize(on_device.second)}),
                               Tensor::from(whole.second, {std::ssize(whole.second)})),
                error);
      for (const char* place : {"host", "file"}) {
        if (place == std::string_view("file") && !(test_device() == kCpu)) continue;
        EXPECT_EQ(with(fmt::format("dtype: {}, place: {}", dtype, place)), on_device) << place;
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
