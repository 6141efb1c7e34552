// Walks the include lines of the repository: libraries depend on each other in one direction only, and no unit (a
// header with the source of its name) and no folder is included, by whatever way, by what it includes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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

// Returns the first path that a file in `folder` must not include; empty when there is none.
std::string wrong_include(const std::string& folder, std::istream& text) {
  const std::set<std::string>& allowed = kMayInclude.at(folder);
  for (std::string line; std::getline(text, line);) {
    const std::optional<std::string> path = included_path(line);
    // Quoted paths begin at the root of the repository.
    if (path && allowed.count(path->substr(0, path->find('/'))) == 0) return *path;
  }
  return "";
}

bool is_source(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
}

std::vector<fs::path> sources_of(const std::string& folder) {
  std::vector<fs::path> sources;
  const fs::path root = fs::path(QUIRE_SOURCE_DIR) / folder;
  if (!fs::is_directory(root)) return sources;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (is_source(entry.path())) sources.push_back(entry.path().lexically_relative(QUIRE_SOURCE_DIR));
  }
  return sources;
}

// "layers/model/block" includes "layers/pass/forward", ...; of folders "trainers/run" includes "trainers/step", ...
using Units = std::map<std::string, std::set<std::string>>;

void add_unit(Units& units, const std::string& file, std::istream& text, char end = '.') {
  const auto unit_of = [end](const std::string& path) { return path.substr(0, path.rfind(end)); };
  std::set<std::string>& includes = units[unit_of(file)];
  for (std::string line; std::getline(text, line);) {
    const std::optional<std::string> path = included_path(line);
    if (path && unit_of(*path) != unit_of(file)) includes.insert(unit_of(*path));
  }
}

// The units of a circle, each including the next; empty when there is none.
std::vector<std::string> find_circle(const Units& units) {
  enum class Mark { fresh, open, closed };
  std::map<std::string, Mark> marks;
  std::vector<std::string> path;
  const std::function<bool(const std::string&)> closes_circle = [&](const std::string& unit) {
    marks[unit] = Mark::open;
    path.push_back(unit);
    const auto found = units.find(unit);
    if (found != units.end()) {
      for (const std::string& next : found->second) {
        if (marks[next] == Mark::open) {
          path.erase(path.begin(), std::find(path.begin(), path.end(), next));
          return true;
        }
        if (marks[next] == Mark::fresh && closes_circle(next)) return true;
      }
    }
    marks[unit] = Mark::closed;
    path.pop_back();
    return false;
  };
  for (const auto& [unit, includes] : units) {
    if (marks[unit] == Mark::fresh && closes_circle(unit)) return path;
  }
  return {};
}

TEST(IncludeDirection, TheRepositoryKeepsIt) {
  Units units, folders;
  for (const auto& [folder, allowed] : kMayInclude) {
    for (const fs::path& source : sources_of(folder)) {
      std::ifstream text(fs::path(QUIRE_SOURCE_DIR) / source);
      EXPECT_EQ(wrong_include(folder, text), "") << "in " << source;
      text.clear();
      text.seekg(0);
      add_unit(units, source.string(), text);
      if (folder == "tests" || folder == "experiments") continue;
      text.clear();
      text.seekg(0);
      add_unit(folders, source.string(), text, '/');
    }
  }
  EXPECT_GT(units.size(), 200U);
  EXPECT_EQ(find_circle(units), std::vector<std::string>{});
  EXPECT_GT(folders.size(), 20U);
  EXPECT_EQ(find_circle(folders), std::vector<std::string>{});
}

TEST(IncludeDirection, CirclesAreNoticed) {
  const auto circle = [](const std::vector<std::pair<std::string, std::string>>& includes, char end = '.') {
    Units units;
    for (const auto& [file, included] : includes) {
      std::istringstream text("#include \"" + included + "\"\n");
      add_unit(units, file, text, end);
    }
    return find_circle(units).size();
  };
  EXPECT_EQ(circle({{"core/a.h", "core/b.h"}, {"core/b.cpp", "core/b.h"}}), 0U);
  // A base whose source makes what derives from it.
  EXPECT_EQ(circle({{"core/derived.h", "core/base.h"}, {"core/base.cpp", "core/derived.h"}}), 2U);
  EXPECT_EQ(circle({{"core/a.h", "core/b.h"}, {"core/b.h", "core/c.h"}, {"core/c.cpp", "core/a.h"}}), 3U);
  // Two folders of units that form no circle themselves.
  EXPECT_EQ(circle({{"core/a/x.h", "core/b/x.h"}, {"core/b/y.h", "core/a/y.h"}}), 0U);
  EXPECT_EQ(circle({{"core/a/x.h", "core/b/x.h"}, {"core/b/y.h", "core/a/y.h"}}, '/'), 2U);
}

TEST(IncludeDirection, WrongOnesAreNoticed) {
  const auto check = [](const std::string& folder, const std::string& line) {
    std::istringstream text("#pragma once\n" + line + "\n");
    return wrong_include(folder, text);
  };
  EXPECT_EQ(check("core", "#include \"kernels/op.h\""), "kernels/op.h");
  EXPECT_EQ(check("data", "#include \"kernels/op.h\""), "kernels/op.h");
  EXPECT_EQ(check("layers", "#  include \"trainers/run/trainer.h\""), "trainers/run/trainer.h");
  EXPECT_EQ(check("trainers", "#include \"tests/support/x.h\""), "tests/support/x.h");
  EXPECT_EQ(check("tests", "#include \"experiments/x.h\""), "experiments/x.h");
  EXPECT_EQ(check("core", "#include \"tensor.h\""), "tensor.h");
  EXPECT_EQ(check("kernels", "#include \"kernels/cpu/gemm.h\""), "");
  EXPECT_EQ(check("trainers", "#include \"data/corpus/corpus.h\""), "");
  EXPECT_EQ(check("core", "#include <vector>"), "");
}

}  // namespace
}  // namespace quire
