#include "core/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "core/check.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

// Returns folders whose lib/python*/ contains packages, the nearest first.
std::vector<fs::path> python_environments() {
  std::vector<fs::path> found;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') found.emplace_back(value);
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    fs::path python = fs::path(folder) / "python3";
    std::error_code ignored;
    if (folder.empty() || !fs::exists(python, ignored)) continue;
    // Follows links one by one: the first leads to an environment, further ones to the environment that it was made
    // from.
    constexpr int kMaxLinks = 16;
    for (int link = 0; link < kMaxLinks; ++link) {
      found.push_back(python.parent_path().parent_path());
      const fs::path to = fs::read_symlink(python, ignored);
      if (to.empty()) break;
      python = to.is_absolute() ? to : python.parent_path() / to;
    }
    break;
  }
  found.emplace_back("/usr/local");
  found.emplace_back("/usr");
  return found;
}

// Returns the entries of a folder in the order of their names; none when it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> entries;
  for (fs::directory_iterator next(folder, ignored), end; next != end && !ignored; next.increment(ignored)) {
    entries.push_back(next->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void* open_packaged(const std::string& name) {
  for (const fs::path& environment : python_environments()) {
    for (const fs::path& python : entries_of(environment / "lib")) {
      if (!python.filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const fs::path& package : entries_of(python / packages / "nvidia")) {
          const fs::path file = package / "lib" / name;
          std::error_code ignored;
          if (!fs::exists(file, ignored)) continue;
          void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
          if (handle != nullptr) return handle;
        }
      }
    }
  }
  return nullptr;
}

// Extracts the library: "libcublasLt.so.13: cannot open shared object file: No such file or directory" ->
// "libcublasLt.so.13"
std::string missing_library(const std::string& message) {
  const size_t colon = message.find(": cannot open shared object file");
  return colon == std::string::npos ? "" : message.substr(0, colon);
}

}  // namespace

void* open_library(const std::string& file, std::string& reason) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  reason = ::dlerror();
  if (file.find('/') == std::string::npos) handle = open_packaged(file);
  return handle;
}

std::filesystem::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&build_id), &info) == 0 || info.dli_fname == nullptr) {
    fail(ErrorKind::internal, "the folder of libquire.so is unknown");
  }
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

const char* build_id() {
  return QUIRE_BUILD_ID;
}

void* library_function(const std::filesystem::path& path, const char* function, std::string& reason,
                       bool shares_symbols) {
  const std::string file = path.filename().string();
  const int how = RTLD_NOW | (shares_symbols ? RTLD_GLOBAL : RTLD_LOCAL);
  void* handle = dlopen(path.c_str(), how);
  // Missing libraries are loaded one after the other: the loader uses a library that is loaded already, wherever it was
  // found.
  for (std::string last; handle == nullptr;) {
    reason = fmt::format("{}: {}", file, dlerror());
    const std::string missing = missing_library(reason.substr(file.size() + 2));
    if (missing.empty() || missing == last || missing.find('/') != std::string::npos) return nullptr;
    std::string ignored;
    if (open_library(missing, ignored) == nullptr) {
      reason += ", nor in the packages of a Python environment; put its folder on LD_LIBRARY_PATH";
      return nullptr;
    }
    last = missing;
    handle = dlopen(path.c_str(), how);
  }
  reason.clear();
  void* const found = dlsym(handle, function);
  if (found == nullptr) reason = fmt::format("{}: built from other sources than libquire.so; build both again", file);
  return found;
}

}  // namespace quire
