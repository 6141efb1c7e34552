// Model folders in Hugging Face layout for tests: the golden ones, and copies with changes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace quire::test {

// QUIRE_EXCHANGE_DIR, or the folder in the source tree.
inline std::filesystem::path exchange_folder() {
  const char* chosen = std::getenv("QUIRE_EXCHANGE_DIR");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/exchange";
}

// The folders of models, sorted.
inline std::vector<std::filesystem::path> exchange_models() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(exchange_folder())) {
    if (std::filesystem::exists(entry.path() / "golden.h5")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

inline void write_all(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::remove(path);
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  ASSERT_TRUE(stream.flush().good()) << path;
}

// Makes `to` a folder with links to the weights of a model and this config.json.
inline void link_model(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& config) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".safetensors") == std::string::npos) continue;
    std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), to / name);
  }
  write_all(to / "config.json", config);
}

}  // namespace quire::test
