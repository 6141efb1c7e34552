// manifest.json of a checkpoint lists its files, so that damage is found before a file is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quire {

struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  std::string checksum;  // XXH3
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;  // in the order written

  std::string to_json() const;  // carries a checksum of itself
  // Reads CHECKPOINT/manifest.json. Throws Error(checkpoint) when it is missing, damaged, of an unknown version, or of
  // another step than the folder's name.
  static Manifest read(const std::filesystem::path& checkpoint);
  // Compares every file with the manifest. Throws Error(checkpoint).
  void verify(const std::filesystem::path& checkpoint) const;
  static void verify(const std::filesystem::path& checkpoint, const std::vector<ManifestFile>& some);
  // Returns the files that one of several ranks handles: each gets about as many bytes.
  std::vector<ManifestFile> share_of(int rank, int ranks) const;
};

// Return "step-00000500" for a step, and the step for such a name; nothing for other names.
std::string checkpoint_name(int64_t step);
std::optional<int64_t> checkpoint_step(const std::string& name);

}  // namespace quire
