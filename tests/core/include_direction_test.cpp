// Walks the include lines of the repository: libraries depend on each other in one direction only.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>

namespace quire {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> kMayInclude{
    {"core", {"core"}},
    {"kernels", {"core", "kernels"}},
    {"autograd", {"core", "kernels", "autograd"}},
    {"layers", {"core", "kernels", "autograd", "layers"}},
    {"data", {"core", "data"}},
    {"trainers", {"core", "kernels", "autograd", "layers", "data", "trainers"}},
    {"experiments", {"core", "kernels", "autograd", "layers", "data", "trainers", "experiments"}},
    {"tests", {"core", "kernels", "autograd", "layers", "data", "trainers", "tests"}},
};

// The path between the quotes of an include line.
std::optional<std::string> included_path(const std::string& line) {
  const size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return std::nullopt;
  const size_t word = line.find_first_not_of(" \t", hash + 1);
  if (word == std::string::npos || line.compare(word, 7, "include") != 0) return std::nullopt;
  const size_t open = line.find('"', word);
  if (open == std::string::npos) return std::nullopt;
  return line.substr(open + 1, line.find('"', open + 1) - open - 1);
}

// Empty when the text of a file in `folder` includes only what it may; otherwise the offending path.
std::string wrong_include(const std::string& folder, std::istream& text) {
  const std::set<std::string>& allowed = kMayInclude.at(folder);
  for (std::string line; std::getline(text, line);) {
    const std::optional<std::string> path = included_path(line);
    // Quoted paths begin at the root of the repository.
    if (path && allowed.count(path->substr(0, path->find('/'))) == 0) return *path;
  }
  return "";
}

TEST(IncludeDirection, TheRepositoryKeepsIt) {
  int64_t files = 0;
  for (const auto& [folder, allowed] : kMayInclude) {
    const fs::path root = fs::path(QUIRE_SOURCE_DIR) / folder;
    if (!fs::is_directory(root)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
      std::ifstream text(entry.path());
      EXPECT_EQ(wrong_include(folder, text), "") << "in " << entry.path().lexically_relative(QUIRE_SOURCE_DIR);
      ++files;
    }
  }
  EXPECT_GT(files, 20);
}

TEST(IncludeDirection, WrongOnesAreNoticed) {
  const auto check = [](const std::string& folder, const std::string& line) {
    std::istringstream text("#pragma once\n" + line + "\n");
    return wrong_include(folder, text);
  };
  EXPECT_EQ(check("core", "#include \"kernels/op.h\""), "kernels/op.h");
  EXPECT_EQ(check("data", "#include \"kernels/op.h\""), "kernels/op.h");
  EXPECT_EQ(check("layers", "#  include \"trainers/trainer.h\""), "trainers/trainer.h");
  EXPECT_EQ(check("trainers", "#include \"tests/support/x.h\""), "tests/support/x.h");
  EXPECT_EQ(check("tests", "#include \"experiments/x.h\""), "experiments/x.h");
  EXPECT_EQ(check("core", "#include \"tensor.h\""), "tensor.h");
  EXPECT_EQ(check("kernels", "#include \"kernels/cpu/gemm.h\""), "");
  EXPECT_EQ(check("trainers", "#include \"data/corpus.h\""), "");
  EXPECT_EQ(check("core", "#include <vector>"), "");
}

}  // namespace
}  // namespace quire
