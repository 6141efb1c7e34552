#include "trainers/cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/temporary_directory.h"
#include "trainers/cli/config_verb.h"

namespace quire {
namespace {

struct SampleConfig {
  int64_t width = 4;
  std::string name = "a";
  template <class Visitor>
  void fields(Visitor& v) {
    v.field("width", width, {.help = "how wide", .min = 1});
    v.field("name", name, {.help = "the name"});
  }
};

void add_fail(Verb& program) {
  Verb& app = add_verb(program, "fail", "Fails in a chosen way", "quire fail disk");
  const auto how = std::make_shared<std::string>();
  app.add_option("HOW", *how)->required();
  app.callback([how] {
    if (*how == "disk") throw Error(ErrorKind::disk, "two\nlines");
    if (*how == "memory") throw std::bad_alloc();
    if (*how == "locked") {
      throw std::filesystem::filesystem_error("status", "folder/corpus.h5",
                                              std::make_error_code(std::errc::permission_denied));
    }
    if (*how == "other") throw std::runtime_error("surprise");
    if (*how == "stop") throw Exit{kExitStopped};
    print_json({{"loss", NAN}, {"step", 3}});
  });
}

void add_config(Verb& program) {
  add_config_verb(program, config_verb_for<SampleConfig>());
}

struct Result {
  int code = 0;
  std::string out;
  std::string err;
};

Result run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "quire");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Result result;
  const std::vector<AddVerb> verbs{add_fail, add_config};
  result.code = run_program(static_cast<int>(arguments.size()), arguments.data(),
                            {[] { return std::string("quire 1.2"); }, {}}, verbs);
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

TEST(Program, HelpAndVersion) {
  EXPECT_EQ(run({"--version"}).out, "quire 1.2\n");
  const Result help = run({"fail", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Example:\n  quire fail disk"), std::string::npos) << help.out;
}

TEST(Program, UsageErrorsAreOneLineAndExit2) {
  const std::vector<std::vector<const char*>> wrong{{"fial"}, {"fail"}, {"fail", "a", "b"}, {"fail", "--no"}};
  for (const auto& arguments : wrong) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.rfind("quire: error: ", 0), 0U) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    EXPECT_NE(result.err.find("--help"), std::string::npos) << result.err;
  }
}

TEST(Program, ExceptionsBecomeExitCodes) {
  const Result disk = run({"fail", "disk"});
  EXPECT_EQ(disk.code, 7);
  EXPECT_EQ(disk.err, "quire: error: two lines\n");
  EXPECT_EQ(run({"fail", "memory"}).code, 8);
  const Result locked = run({"fail", "locked"});
  EXPECT_EQ(locked.code, 7);
  EXPECT_EQ(locked.err, "quire: error: folder/corpus.h5: Permission denied\n");
  const Result other = run({"fail", "other"});
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(other.err, "quire: error: internal: surprise\n");
  EXPECT_EQ(run({"fail", "stop"}).code, 75);
  const Result fine = run({"fail", "json"});
  EXPECT_EQ(fine.code, 0);
  EXPECT_EQ(fine.out, "{\"loss\":null,\"step\":3}\n");
}

TEST(Program, LostOutputIsAnError) {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "no /dev/full";
  for (const char* argument : {"fail json", "--help"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(full, STDOUT_FILENO);
      const bool is_help = argument[0] == '-';
      const std::vector<const char*> arguments =
          is_help ? std::vector<const char*>{"quire", "--help"} : std::vector<const char*>{"quire", "fail", "json"};
      const std::vector<AddVerb> verbs{add_fail};
      ::_exit(run_program(static_cast<int>(arguments.size()), arguments.data(),
                          {[] { return std::string("quire 1.2"); }, {}}, verbs));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 7) << argument;
  }
  ::close(full);
}

TEST(ConfigVerb, ChecksPrintsAndExplains) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder / "run.yaml").string();
  std::ofstream(path) << "width: 8\n";
  EXPECT_EQ(run({"config", path.c_str(), "--check"}).out, path + ": valid\n");
  EXPECT_EQ(run({"config", path.c_str(), "name=b", "--print"}).out, saved_configuration("width: 8\nname: b\n"));
  EXPECT_EQ(run({"config", path.c_str(), "--print", "minimal"}).out, "width: 8\n");
  EXPECT_EQ(run({"config", path.c_str(), "--print", "all"}).code, 2);
  EXPECT_EQ(run({"config"}).code, 2);
  EXPECT_EQ(run({"config", "--explain", "width"}).out, "width: integer, at least 1, default 4\n    how wide\n");
  EXPECT_EQ(run({"config", "--explain", "depth"}).code, 2);
  EXPECT_NE(run({"config", "--list"}).out.find("name: text"), std::string::npos);
  const Result wrong = run({"config", path.c_str(), "width=0"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.err, "quire: error: command line: width=0: width: must be at least 1, got 0\n");
}

}  // namespace
}  // namespace quire
