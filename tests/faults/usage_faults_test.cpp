// Command lines that mean nothing.
#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

TEST(UsageFaults, AreOneLineThatPointsToTheHelp) {
  const std::vector<std::vector<std::string>> commands{{},
                                                       {"trian"},
                                                       {"train", "--resme", "x"},
                                                       {"eval"},
                                                       {"eval", "x", "--corpus"},
                                                       {"generate", "x", "--length", "-1"},
                                                       {"generate", "x", "--temperature", "hot"},
                                                       {"generate", "x", "--top-p", "2"},
                                                       {"bench"},
                                                       {"bench", "x", "--steps", "0"},
                                                       {"prepare", "--input", "x"}};
  for (const std::vector<std::string>& command : commands) EXPECT_FAULT(run_quire(command), 2, "--help");
}

TEST(UsageFaults, OfTrain) {
  const TinyRun tiny;
  EXPECT_FAULT(run_quire({"train"}), 2, "give a YAML file, or --resume RUN_DIR");
  EXPECT_FAULT(run_quire({"train", tiny.config().string(), "--drop-state"}), 2, "--drop-state needs --resume");
  EXPECT_FAULT(run_quire({"train", "--resume", "x", tiny.config().string()}), 2, "give only key.path=value");
  EXPECT_FAULT(run_quire({"train", "--resume", "x", "--run-dir", "y"}), 2, "--run-dir has no meaning with --resume");
}

}  // namespace
}  // namespace quire::test
