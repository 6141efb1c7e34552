// Carried state in a checkpoint that is damaged, incomplete, or of another configuration.
#include "core/files/file_io.h"
#include "tests/faults/expect_fault.h"
#include "tests/support/checkpoint_edit.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

const std::string kPart = "state-00000000-00000003";

TEST(RowStateFaults, ADamagedFileOfRows) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole").code, 0);
  const auto bytes = fs::file_size(tiny.checkpoint("whole", 20) / (kPart + ".rows"));
  struct Damage {
    const char* what;
    std::function<void(const fs::path&)> make;
  };
  const Damage damages[] = {
      {"is damaged (wrong checksum)",
       [](const fs::path& file) {
         std::string text = read_text(file);
         text[text.size() / 3] = static_cast<char>(text[text.size() / 3] ^ 4);
         write_text(file, text);
       }},
      {"bytes instead of ", [&](const fs::path& file) { fs::resize_file(file, bytes / 2); }},
      {"bytes instead of ", [&](const fs::path& file) { fs::resize_file(file, bytes + 1); }},
      {"is missing", [](const fs::path& file) { fs::remove(file); }},
  };
  for (const Damage& damage : damages) {
    fs::remove_all(tiny / "run");
    fs::copy(tiny / "whole", tiny / "run", fs::copy_options::recursive);
    const fs::path checkpoint = tiny.checkpoint("run", 20);
    damage.make(checkpoint / (kPart + ".rows"));
    EXPECT_FAULT(run_quire({"eval", checkpoint.string()}), 4, kPart + ".rows: ");
    EXPECT_FAULT(run_quire({"inspect", checkpoint.string()}), 4, damage.what);
    EXPECT_FAULT(run_quire(tiny.resume_arguments(checkpoint)), 4, damage.what);
    const ProgramResult resumed = tiny.resume("run");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("going on from step 10"), std::string::npos) << resumed.err;
    expect_same_checkpoint(checkpoint, tiny.checkpoint("whole", 20));
  }
}

// Everything verifies, but it is not what this run carries.
class RowStateOfAnotherKind : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(tiny_.train("run", {"schedule.steps=4"}).code, 0); }
  fs::path checkpoint() const { return tiny_.checkpoint("run", 4); }
  void rename_state(const std::string& to) const {
    for (const char* ending : {".h5", ".rows"})
      fs::rename(checkpoint() / (kPart + ending), checkpoint() / (to + ending));
    seal_checkpoint(checkpoint());
  }
  // Refused, unless carried state is dropped.
  void expect_refused(const std::string& message) const {
    EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=5"}), 4, message);
    const ProgramResult dropped = tiny_.resume("run", {"schedule.steps=5", "--drop-state"});
    EXPECT_EQ(dropped.code, 0) << dropped.err;
  }

  TinyRun tiny_;
};

TEST_F(RowStateOfAnotherKind, RowsThatNoFileHolds) {
  rename_state("state-00000001-00000004");
  EXPECT_FAULT(run_quire({"inspect", checkpoint().string()}), 4, "no file holds the state of rows 0 to 0");
  expect_refused("no file holds the state of rows 0 to 0; use another checkpoint of the run, or --drop-state");
}

TEST_F(RowStateOfAnotherKind, LastRowsThatNoFileHolds) {
  rename_state("state-00000000-00000002");
  expect_refused("no file holds the state of rows 2 to 2");
}

TEST_F(RowStateOfAnotherKind, RowsOfMoreThanOneFile) {
  for (const char* ending : {".h5", ".rows"}) {
    fs::copy(checkpoint() / (kPart + ending), checkpoint() / (std::string("state-00000002-00000005") + ending));
  }
  seal_checkpoint(checkpoint());
  expect_refused("state-00000002-00000005 holds the state of row 2 again");
}

TEST_F(RowStateOfAnotherKind, MoreRowsThanTheRunHas) {
  rename_state("state-00000000-00000004");
  expect_refused("state-00000000-00000004 holds more than the 3 rows of the run");
}

TEST_F(RowStateOfAnotherKind, ANameThatGivesNoRows) {
  for (const char* name : {"state-00000003-00000000", "state-0-3", "state-all"}) {
    for (const char* ending : {".h5", ".rows"}) {
      fs::copy(checkpoint() / (kPart + ending), checkpoint() / (std::string(name) + ending));
    }
    seal_checkpoint(checkpoint());
    EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=5"}), 4, std::string(name) + ".h5: its name gives no rows");
    for (const char* ending : {".h5", ".rows"}) fs::remove(checkpoint() / (std::string(name) + ending));
  }
}

TEST_F(RowStateOfAnotherKind, NoFileOfRows) {
  fs::remove(checkpoint() / (kPart + ".rows"));
  seal_checkpoint(checkpoint());
  expect_refused("has no file " + kPart + ".rows");
}

TEST_F(RowStateOfAnotherKind, AShortFileOfRows) {
  const fs::path file = checkpoint() / (kPart + ".rows");
  fs::resize_file(file, fs::file_size(file) - 1);
  seal_checkpoint(checkpoint());
  expect_refused(kPart + ".rows: ends inside row 2");
}

TEST_F(RowStateOfAnotherKind, ARowUnderAnotherChecksum) {
  std::string bytes = read_text(checkpoint() / (kPart + ".rows"));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(checkpoint() / (kPart + ".rows"), bytes);
  seal_checkpoint(checkpoint());
  expect_refused(kPart + ".rows: row 1 is damaged (wrong checksum)");
}

TEST_F(RowStateOfAnotherKind, APartOfAnotherShape) {
  edit_description(checkpoint(), kPart, [](nlohmann::ordered_json& rows) {
    auto& part = rows.at("parts").at(0);
    const auto length = part.at("shape").at(0).get<int64_t>();
    part["shape"][0] = length + 1;
    rows["row_bytes"] = rows.at("row_bytes").get<int64_t>() + 16 * 4;
  });
  expect_refused("but this configuration wants f32 [");
}

TEST_F(RowStateOfAnotherKind, ADescriptionThatMakesNoSense) {
  edit_description(checkpoint(), kPart, [](nlohmann::ordered_json& rows) { rows["row_bytes"] = 7; });
  EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=5"}), 4, "what it says of its rows contradicts itself");
  edit_description(checkpoint(), kPart, [](nlohmann::ordered_json& rows) { rows["parts"][0]["dtype"] = "f16"; });
  EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=5"}), 4, kPart + ".h5: rows of f16 [");
  edit_description(checkpoint(), kPart, [](nlohmann::ordered_json& rows) {
    rows["parts"][0]["dtype"] = "f32";
    rows["parts"][0]["shape"] = {-1, 2};
  });
  EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=5"}), 4, "does not say what its rows are");
  edit_description(checkpoint(), kPart, [](nlohmann::ordered_json& rows) { rows.erase("parts"); });
  EXPECT_FAULT(run_quire({"inspect", checkpoint().string()}), 4, kPart + ".h5: does not say what its rows are");
}

}  // namespace
}  // namespace quire::test
