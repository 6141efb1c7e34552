// Tests that any number of ranks loads the moments of any other number; a moment that is missing, present twice or of
// another model is refused.
#include "trainers/checkpoint/stored_moments.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "kernels/backend.h"
#include "tests/support/temporary_directory.h"
#include "trainers/checkpoint/checkpoint_meta.h"

namespace quire {
namespace {

// Each element is a number of its own.
struct RankMoments {
  RankMoments(const OptimizerConfig& config, const RankPlace& place, bool filled) {
    load_backends();
    store.parameter("matrix", {70, 30}, Initializer::constant(0), true, 2);
    store.parameter("other", {33, 17}, Initializer::constant(0), true);
    store.parameter("gain", {30}, Initializer::constant(0), false);
    store.allocate(DType::f32, kCpu, 1);
    parts = std::make_unique<ParameterParts>(store, place, cut_of(config), 500);
    optimizer = make_optimizer(store, *parts, config);
    for (const Moment& moment : optimizer->moments()) {
      float* values = moment.values.data<float>();
      for (int64_t i = moment.begin; i < moment.end; ++i) *values++ = filled ? value(moment.name, i) : -1;
    }
  }
  static float value(const std::string& name, int64_t element) {
    return static_cast<float>(element) + static_cast<float>(name.size()) / 64 + (name[0] == 'v' ? 0.5F : 0.0F);
  }

  ParameterStore store;
  std::unique_ptr<ParameterParts> parts;
  std::unique_ptr<Optimizer> optimizer;
};

class StoredMoments : public ::testing::Test {
 protected:
  static OptimizerConfig config_of(OptimizerKind kind) {
    OptimizerConfig config;
    config.kind = kind;
    if (kind == OptimizerKind::adafactor) config.momentum = 0.9;
    return config;
  }
  // The parts that so many ranks save.
  static std::vector<CheckpointPart> saved(OptimizerKind kind, int ranks) {
    std::vector<CheckpointPart> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      const RankMoments mine(config_of(kind), {rank, ranks}, true);
      parts.push_back({moments_part_name(rank), mine.optimizer->save(), {}});
    }
    return parts;
  }
  std::filesystem::path write(const std::vector<CheckpointPart>& parts) const {
    return write_checkpoint(folder_.path(), 1, parts, CheckpointMeta{.step = 1, .rows = 1}.to_json());
  }
  // The error of loading the parts on two ranks, without the folder.
  std::string error_of(const std::vector<CheckpointPart>& parts) const {
    const std::filesystem::path path = write(parts);
    try {
      for (int rank = 0; rank < 2; ++rank) {
        const RankMoments mine(config_of(OptimizerKind::adamw), {rank, 2}, false);
        load_moments(CheckpointReader::open(path), mine.store, *mine.optimizer, {rank, 2});
      }
    } catch (const Error& error) {
      const std::string message = fmt::format("{} {}", error.exit_code(), error.what());
      const size_t at = message.find(path.string());
      return at == std::string::npos ? message : message.substr(0, at) + message.substr(at + path.string().size());
    }
    return "";
  }
  const test::TemporaryDirectory folder_;
};

TEST_F(StoredMoments, AnyNumberOfRanksReadsWhatAnyOtherSaved) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::adafactor, OptimizerKind::muon}) {
    for (const int before : {1, 2, 3, 5}) {
      const CheckpointReader reader = CheckpointReader::open(write(saved(kind, before)));
      for (const int after : {1, 2, 4, 7}) {
        for (int rank = 0; rank < after; ++rank) {
          const RankMoments mine(config_of(kind), {rank, after}, false);
          load_moments(reader, mine.store, *mine.optimizer, {rank, after});
          for (const Moment& moment : mine.optimizer->moments()) {
            const float* values = moment.values.data<float>();
            for (int64_t i = moment.begin; i < moment.end; ++i) {
              ASSERT_EQ(*values++, RankMoments::value(moment.name, i)) << slice_name(moment) << ", element " << i;
            }
          }
        }
      }
    }
  }
}

// On a shared file system it matters how much each rank reads.
TEST_F(StoredMoments, OnlyThePartsOfNeighboursAreRead) {
  const CheckpointReader reader = CheckpointReader::open(write(saved(OptimizerKind::adamw, 8)));
  for (int part = 0; part < 8; ++part) {
    if (part != 4 && part != 5) std::filesystem::resize_file(reader.path() / (moments_part_name(part) + ".h5"), 1);
  }
  const RankMoments mine(config_of(OptimizerKind::adamw), {2, 4}, false);
  EXPECT_NO_THROW(load_moments(reader, mine.store, *mine.optimizer, {2, 4}));
}

TEST_F(StoredMoments, HolesAndOverlapsAreRefused) {
  const std::vector<CheckpointPart> whole = saved(OptimizerKind::adamw, 3);
  EXPECT_EQ(error_of(whole), "");
  std::vector<CheckpointPart> hole{whole[0], whole[2]};
  EXPECT_EQ(error_of(hole), "4 : m.gain[0:16] of the optimizer is not there once; the checkpoint is of another model");
  std::vector<CheckpointPart> twice = whole;
  twice[0].tensors.push_back(whole[1].tensors.front());
  EXPECT_NE(error_of(twice).find("of the optimizer is not there once"), std::string::npos) << error_of(twice);
  EXPECT_EQ(error_of({{"model", {{"x", Tensor::zeros({1}, DType::f32)}}, {}}}), "4 : has no optimizer.h5");
}

TEST_F(StoredMoments, WhatIsOfAnotherModelIsNamed) {
  const auto with = [](const std::string& name, const Tensor& tensor) {
    std::vector<CheckpointPart> parts = saved(OptimizerKind::adamw, 1);
    for (NamedTensor& moment : parts[0].tensors) {
      if (moment.name == "m.gain") moment = {name, tensor};
    }
    return parts;
  };
  EXPECT_EQ(error_of(with("m.bias", Tensor::zeros({30}, DType::f32))),
            "4 optimizer.h5: m.bias is not in this model; the checkpoint is of another model");
  EXPECT_EQ(error_of(with("m.gain", Tensor::zeros({31}, DType::f32))),
            "4 optimizer.h5: m.gain is f32 [31] but the model wants f32 [30]");
  EXPECT_EQ(error_of(with("m.gain", Tensor::zeros({30}, DType::f64))),
            "4 optimizer.h5: m.gain is f64 [30] but the model wants f32 [30]");
  for (const char* name : {"m.gain[0:29]", "m.gain[x:30]", "m.gain[0:30", "m.gain[-1:29]", "m.gain[30]"}) {
    EXPECT_EQ(error_of(with(name, Tensor::zeros({30}, DType::f32))),
              fmt::format("4 optimizer.h5: {} is no slice of 30 elements", name));
  }
}

}  // namespace
}  // namespace quire
