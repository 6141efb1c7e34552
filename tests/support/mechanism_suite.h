// The properties that every mechanism must keep, checked on any model configuration, and the promises of its descriptor
// (layers/mechanism/mechanism.h), which are checked both ways. A new mechanism adds one line to a list of cases and
// instantiates the suites below with it. The checks are in mechanism_suite_reading.cpp (one model, f64),
// mechanism_suite_training.cpp (whole training steps over a corpus) and mechanism_suite_ranks.cpp (whole runs on
// several ranks).
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "trainers/setup/config.h"

namespace quire::test {

struct MechanismCase {
  std::string name;
  std::vector<std::string> settings;  // key=value over mechanism_config()
  // Settings of the same model with the other kind of cache; empty when there is none.
  std::vector<std::string> other_cache = {};
  bool concat = true;  // data.pack: concat is allowed
};

struct MechanismParam {
  MechanismCase mechanism;
  Pack pack = Pack::pad;
};
inline void PrintTo(const MechanismParam& param, std::ostream* out) {
  *out << param.mechanism.name;
}

// Tiny: width 8, two heads, two layers, three rows of eight positions.
RunConfig mechanism_config(const std::vector<std::string>& settings);

// Each case with both ways to pack.
std::vector<MechanismParam> with_packs(const std::vector<MechanismCase>& cases);
// Keeps one of each pair of cases: a row of a single document is the same in both.
std::vector<MechanismParam> padded_of(const std::vector<MechanismParam>& params);
std::vector<MechanismParam> with_other_cache_of(const std::vector<MechanismParam>& params);

class MechanismTest : public ::testing::TestWithParam<MechanismParam> {
 protected:
  // Skips, on a GPU, cases with memories that compute on the host or with state in files.
  void SetUp() override;
  // Returns the case's configuration with more settings.
  static RunConfig config(std::vector<std::string> more = {});
};

class MechanismReading : public MechanismTest {};
class MechanismSplit : public MechanismTest {};   // padded_of
class MechanismCaches : public MechanismTest {};  // with_other_cache_of
class MechanismTraining : public MechanismTest {};
class MechanismRanks : public MechanismTest {};

inline std::string name_of_param(const ::testing::TestParamInfo<MechanismParam>& info) {
  return info.param.mechanism.name + "_" + std::string(name_in_config(info.param.pack));
}

}  // namespace quire::test
