#include "tests/support/mechanism_suite.h"

#include "tests/support/test_device.h"
#include "tests/support/test_mechanisms.h"

namespace quire::test {

// A program instantiates the suites it has cases for.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MechanismReading);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MechanismSplit);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MechanismCaches);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MechanismTraining);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MechanismRanks);

namespace {

// Weights are large, so that a wrong term shows.
constexpr const char* kBase = R"(
run: {name: mechanism, precision: f64}
data: {subsequence: 8, rows: 3}
model:
  width: 8
  layers: 2
  heads: 2
  mlp: {hidden: 12}
  position: {kind: t5, t5: {buckets: 6, max_distance: 8}}
  initialization: {std: 0.3, scale_residual: false}
optimizer: {lr: 0.01}
schedule: {warmup: 3, steps: 20}
evaluate: {rows: 2}
)";

}  // namespace

RunConfig mechanism_config(const std::vector<std::string>& settings) {
  register_test_mechanisms();
  std::vector<std::string> all{std::string("run.device=") + name_of(test_device().kind)};
  all.insert(all.end(), settings.begin(), settings.end());
  return parse_config<RunConfig>(kBase, "mechanism.yaml", all);
}

std::vector<MechanismParam> with_packs(const std::vector<MechanismCase>& cases) {
  std::vector<MechanismParam> params;
  for (const MechanismCase& mechanism : cases) {
    params.push_back({mechanism, Pack::pad});
    if (mechanism.concat) params.push_back({mechanism, Pack::concat});
  }
  return params;
}

std::vector<MechanismParam> padded_of(const std::vector<MechanismParam>& params) {
  std::vector<MechanismParam> kept;
  for (const MechanismParam& param : params) {
    if (param.pack == Pack::pad) kept.push_back(param);
  }
  return kept;
}

std::vector<MechanismParam> with_other_cache_of(const std::vector<MechanismParam>& params) {
  std::vector<MechanismParam> kept;
  for (const MechanismParam& param : params) {
    if (!param.mechanism.other_cache.empty()) kept.push_back(param);
  }
  return kept;
}

void MechanismTest::SetUp() {
  if (test_device() == kCpu) return;
  for (const std::string& setting : GetParam().mechanism.settings) {
    if (setting.find("kind: trivial_") != std::string::npos) GTEST_SKIP() << "its memory computes on the host";
    for (const char* in_files : {"place: file", "kind: two_halves"}) {
      if (setting.find(in_files) != std::string::npos) GTEST_SKIP() << "a GPU reads no state in files";
    }
  }
}

RunConfig MechanismTest::config(std::vector<std::string> more) {
  std::vector<std::string> settings = GetParam().mechanism.settings;
  settings.push_back("data.pack=" + std::string(name_in_config(GetParam().pack)));
  settings.insert(settings.end(), more.begin(), more.end());
  return mechanism_config(settings);
}

}  // namespace quire::test
