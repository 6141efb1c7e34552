// No integer of a configuration is so large that a size derived from it does not fit 64 bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/device.h"
#include "core/tensor.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_run.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

// Makes the section of a key exist; N becomes the first entry of its list.
std::vector<std::string> overrides_for(std::string& key) {
  std::vector<std::string> overrides;
  if (key.starts_with("data.mix.N")) overrides.emplace_back("data.mix=[{task: recall}]");
  if (key.starts_with("model.memory.N")) overrides.emplace_back("model.memory=[{kind: knn, layers: [0]}]");
  // Options of a kind stand in a section of its name.
  for (const std::string section : {"model.attention.", "model.position.", "model.stack."}) {
    if (!key.starts_with(section)) continue;
    const size_t end = key.find('.', section.size());
    if (end == std::string::npos) continue;
    overrides.push_back(section + "kind=" + key.substr(section.size(), end - section.size()));
  }
  if (key.starts_with("model.position.rope.scaling.")) {
    overrides.emplace_back("model.position.rope.scaling={kind: dynamic, factor: 2, original_length: 8, length: 16}");
  }
  if (const size_t index = key.find(".N."); index != std::string::npos) key.replace(index, 3, ".0.");
  return overrides;
}

TEST(NumberLimits, EveryIntegerOfAConfigurationHasThem) {
  int keys = 0;
  for (const ConfigKey& listed : list_config_keys<RunConfig>()) {
    if (listed.type.find("integer") == std::string::npos) continue;
    ++keys;
    for (const char* value : {"9223372036854775807", "-9223372036854775808", "9e18"}) {
      std::string key = listed.key;
      std::vector<std::string> overrides = overrides_for(key);
      const bool is_list = listed.type.find("list") != std::string::npos;
      overrides.push_back(fmt::format("{}={}", key, is_list ? fmt::format("[{}]", value) : value));
      try {
        parse_config<RunConfig>(kTinyConfig, "tiny.yaml", overrides);
        ADD_FAILURE() << overrides.back() << " is accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::config);
        EXPECT_NE(std::string(error.what()).find(": must "), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GT(keys, 60);
}

TEST(NumberLimits, ATensorThatNoMachineHoldsIsOutOfMemory) {
  for (const Shape& shape : {Shape{int64_t{1} << 32, int64_t{1} << 32}, Shape{int64_t{1} << 62, 2, 2, 2},
                             Shape{kMaxElements, 2}, Shape{INT64_MAX, INT64_MAX, INT64_MAX}}) {
    EXPECT_ERROR(Tensor::empty(shape, DType::f32, kMeta), ErrorKind::memory, "is more than any machine holds");
  }
  EXPECT_EQ((Shape{int64_t{1} << 40, 0, int64_t{1} << 40}).numel(), 0);
  EXPECT_EQ((Shape{kMaxElements / 2, 2}).numel(), kMaxElements);
}

}  // namespace
}  // namespace quire::test
