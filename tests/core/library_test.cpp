// Tests libraries that exist only in the packages of a Python environment.
#include "core/library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Another value of a variable while it lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    const char* const before = std::getenv(name);
    if (before != nullptr) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// The tests depend on their order, because a loaded library stays loaded.
TEST(PackagedLibrary, IsFoundInAPythonEnvironment) {
  const fs::path built = QUIRE_PACKAGED_FOLDER;
  const std::string needed = "libpackaged_needed.so.1";
  std::string reason;
  EXPECT_EQ(open_library(needed, reason), nullptr);
  EXPECT_NE(reason.find(needed + ": cannot open shared object file"), std::string::npos) << reason;
  EXPECT_EQ(library_function(built / "libpackaged_needing.so", "packaged_sum", reason), nullptr);
  EXPECT_NE(reason.find("libpackaged_needing.so: " + needed + ": cannot open"), std::string::npos) << reason;
  EXPECT_NE(reason.find("put its folder on LD_LIBRARY_PATH"), std::string::npos) << reason;

  const TemporaryDirectory folder;
  const fs::path packages = folder.path() / "lib/python3.99/site-packages/nvidia";
  fs::create_directories(packages / "another/lib");
  fs::create_directories(packages / "some/lib");
  fs::copy_file(built / needed, packages / "some/lib" / needed);
  // A python3 on PATH that leads there, link by link.
  fs::create_directories(folder.path() / "bin");
  fs::create_directories(folder / "path");
  fs::create_symlink(fs::canonical("/proc/self/exe"), folder.path() / "bin/python3");
  fs::create_symlink("../bin/python3", folder.path() / "path/python3");
  const Environment path("PATH", folder / "path");
  const Environment none("VIRTUAL_ENV", "");
  void* const found = library_function(built / "libpackaged_needing.so", "packaged_sum", reason);
  ASSERT_NE(found, nullptr) << reason;
  EXPECT_EQ(reason, "");
  EXPECT_EQ(reinterpret_cast<int (*)()>(found)(), 8);
  void* const library = open_library(needed, reason);
  ASSERT_NE(library, nullptr);
  EXPECT_NE(dlsym(library, "packaged_number"), nullptr);
}

}  // namespace
}  // namespace quire::test
