// Compares configs/REFERENCE.md with the page that the program writes.
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

TEST(Reference, ThePageIsUpToDate) {
  const ProgramResult result = run_quire({"config", "--list", "--markdown"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(result.out == read_text(std::filesystem::path(QUIRE_SOURCE_DIR) / "configs/REFERENCE.md"))
      << "a key has changed; write the page again with: build/native/bin/quire config --list --markdown > "
         "configs/REFERENCE.md";
  for (const char* key : {"| `optimizer.groups.N.match` | list of text | required |  |", "<br>`wsd`: stays at the peak",
                          "| `schedule.steps` | integer, at least 1, in steps | `2000` | on resume |"}) {
    EXPECT_NE(result.out.find(key), std::string::npos) << key;
  }
}

TEST(Reference, MisspeltKeysFindTheirNeighbour) {
  const std::pair<const char*, const char*> misspelt[] = {
      {"optimiser.lr", "did you mean optimizer.lr?"},
      {"optimizer.groups.0.mach", "did you mean optimizer.groups.N.match?"},
      {"shedule", "did you mean schedule?"},
      {"warmup", "did you mean schedule.warmup?"},
      {"groups", "did you mean optimizer.groups?"},
      {"xyzzy", "no such key; quire config --list shows all keys"},
  };
  for (const auto& [key, message] : misspelt) {
    const ProgramResult result = run_quire({"config", "--explain", key});
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
  const ProgramResult list = run_quire({"config", "--explain", "optimizer.groups.3.lr_scale"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_NE(list.out.find("optimizer.groups.N.lr_scale: number"), std::string::npos) << list.out;
  EXPECT_EQ(run_quire({"config", "--markdown"}).code, 2);
}

}  // namespace
}  // namespace quire::test
