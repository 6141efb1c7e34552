// The folder of a checkpoint that is being written.
#pragma once

#include <functional>
#include <string_view>

#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/checkpoint_manifest.h"

namespace quire {

// The files of a part that one of several ranks writes: rank 0 writes files 1, ranks + 1, ..., and so on.
struct FileShare {
  int rank = 0;
  int ranks = 1;
  bool has(int number) const { return (number - 1) % ranks == rank; }
};

// A tensor whose values are made in pieces while they are written (Hdf5Writer::put_in_pieces).
struct StreamedTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::function<void(int64_t begin, std::span<std::byte> piece)> fill;
};

// The size of the files of a streamed part: the disk writes one while the next one is made.
inline constexpr int64_t kStreamedFileBytes = int64_t{64} << 20;

// Writes files durably into the folder of an unfinished checkpoint and records name, size and checksum of each. Several
// of these may write different files of one folder: the manifest lists the files of all of them.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}

  void write(const std::string& name, std::string_view text);
  // Writes a part, in several files when it has more than part_file_bytes of tensors. Ranks that have the same part
  // share the files.
  void write(const CheckpointPart& part, int64_t part_file_bytes = kPartFileBytes, const FileShare& share = {});
  // Writes a part of tensors only, of which no more than a piece is ever in memory.
  void write_streamed(const std::string& part, std::span<const StreamedTensor> tensors,
                      int64_t part_file_bytes = kStreamedFileBytes);
  // Writes a file that may be larger than memory: fill(write) passes its bytes to write() in pieces.
  using WriteBytes = std::function<void(std::span<const std::byte>)>;
  void write_raw(const std::string& name, const std::function<void(const WriteBytes& write)>& fill);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<ManifestFile>& files() const { return files_; }  // in the order written

 private:
  void write_bytes(const std::string& name, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::vector<ManifestFile> files_;
};

// Writes the manifest of all files. It is the last file, so its presence means that the others are complete.
void finish_checkpoint(const std::filesystem::path& folder, int64_t step, const std::vector<ManifestFile>& files);

}  // namespace quire
