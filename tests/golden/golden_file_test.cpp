#include "tests/golden/golden_file.h"

#include <gtest/gtest.h>

#include <regex>

#include "core/files/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

const std::filesystem::path kSources = std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden";

// Mechanisms that quire does not have yet, whose files are read by no test. None may be left in the end.
const std::set<std::string> kToCome{};
// Kinds of cases that no test reads yet, of mechanisms of which quire has a part. None may be left in the end.
const std::map<std::string, std::set<std::string>> kKindsToCome{};

// mechanism -> the kinds of cases that a test of this folder reads; "" for all of them.
std::map<std::string, std::set<std::string>> read_by_tests() {
  std::map<std::string, std::set<std::string>> read;
  const std::regex call(R"re(golden_folder\(\), "(\w+)"\)\s*\.for_each_case\((?:"(\w+)")?)re");
  for (const auto& entry : std::filesystem::directory_iterator(kSources)) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string source = read_text_file(entry.path());
    for (std::sregex_iterator found(source.begin(), source.end(), call); found != std::sregex_iterator(); ++found) {
      read[(*found)[1]].insert((*found)[2]);
    }
  }
  return read;
}

bool is_to_come(const std::string& mechanism, const std::string& kind) {
  const auto kinds = kKindsToCome.find(mechanism);
  return kinds != kKindsToCome.end() && kinds->second.contains(kind);
}

// Returns the files, and cases of kinds, that no test reads.
std::vector<std::string> unread(const std::filesystem::path& folder) {
  std::vector<std::string> unread;
  const auto read = read_by_tests();
  for (const std::string& mechanism : golden_mechanisms(folder)) {
    if (kToCome.contains(mechanism)) continue;
    const auto tests = read.find(mechanism);
    if (tests == read.end()) unread.push_back(mechanism);
    if (tests == read.end() || tests->second.contains("")) continue;
    const Hdf5Reader file = Hdf5Reader::open_file(folder / (mechanism + ".h5"));
    for (const std::string& name : file.list("/")) {
      const std::string kind = file.attribute_text(name, "kind");
      if (is_to_come(mechanism, kind)) continue;
      if (!tests->second.contains(kind)) unread.push_back(mechanism + " " + name + " of kind " + kind);
    }
  }
  return unread;
}

void write_golden(const std::filesystem::path& path, const std::string& mechanism, int64_t schema) {
  Hdf5Writer writer(path);
  writer.set_attribute("/", "mechanism", mechanism);
  writer.set_attribute("/", "schema_version", schema);
  writer.close();
}

TEST(GoldenFolder, EveryCaseIsReadByATest) {
  if (!std::filesystem::exists(kSources)) GTEST_SKIP() << "the sources of the tests are not on this machine";
  EXPECT_EQ(unread(golden_folder()), std::vector<std::string>());
  for (const auto& [mechanism, kinds] : read_by_tests()) {
    EXPECT_FALSE(kToCome.contains(mechanism)) << mechanism << " has a test and is still among those to come";
    for (const std::string& kind : kinds) EXPECT_FALSE(is_to_come(mechanism, kind)) << mechanism << " " << kind;
  }
}

TEST(GoldenFolder, AnUnknownFileOrKindIsNamed) {
  if (!std::filesystem::exists(kSources)) GTEST_SKIP() << "the sources of the tests are not on this machine";
  const TemporaryDirectory folder;
  write_golden(folder / "novel.h5", "novel", 1);
  write_golden(folder / "kda.h5", "kda", 1);
  Hdf5Writer writer(folder / "landmark.h5");
  writer.set_attribute("case_000", "kind", std::string("stream"));
  writer.set_attribute("case_001", "kind", std::string("novel"));
  writer.close();
  EXPECT_EQ(unread(folder.path()), (std::vector<std::string>{"landmark case_001 of kind novel", "novel"}));
}

TEST(GoldenFile, RefusesUnknownSchemas) {
  const TemporaryDirectory folder;
  write_golden(folder / "t5_bias.h5", "t5_bias", 2);
  EXPECT_ERROR(GoldenFile(folder.path(), "t5_bias"), ErrorKind::data, "schema version 2, only 1 is known");
  write_golden(folder / "xl_rel.h5", "t5_bias", 1);
  EXPECT_ERROR(GoldenFile(folder.path(), "xl_rel"), ErrorKind::data, "the file is about t5_bias");
  EXPECT_ERROR(GoldenFile(folder.path(), "drt_layer"), ErrorKind::data, "drt_layer.h5");
}

}  // namespace
}  // namespace quire::test
