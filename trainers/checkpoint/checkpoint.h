// Checkpoints: directories that exist whole or not at all.
//
//   checkpoints/step-00000500/model.h5, optimizer.h5, state-....h5   the parts; of each rank in the order written
//                             state-....rows                         what is too large for them (row_state.h)
//                             meta.json, config.yaml                 and other texts
//                             manifest.json                          sizes and XXH3 checksums of all of these
//
// A part of more than kPartFileBytes continues in optimizer.2.h5 and so on. The caller decides what a part holds. Names
// that begin with a dot belong to writes or removals that were interrupted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/ranks/ranks.h"
#include "core/tensor.h"
#include "trainers/checkpoint/checkpoint_manifest.h"

namespace quire {

// The largest size of the tensors in one file, which is built in memory. A single larger tensor has a file for itself.
inline constexpr int64_t kPartFileBytes = int64_t{256} << 20;

// Returns the name of the n-th file of a part, from 1.
std::string part_file_name(const std::string& part, int number);

// One HDF5 file, or several when it is large. Names are unique within tensors and within texts.
struct CheckpointPart {
  std::string file;  // without .h5
  std::vector<NamedTensor> tensors;
  std::vector<std::pair<std::string, std::string>> texts;
};

using TextFiles = std::vector<std::pair<std::string, std::string>>;  // file name, content

class CheckpointFolder;
using WriteFiles = std::function<void(CheckpointFolder& folder)>;

// Writes checkpoints_dir/step-NNNNNNNN durably and returns it; a checkpoint of the same step is replaced. Every rank
// calls this and writes its own files; root then writes meta and texts, and the manifest after everything else. A
// failure (full disk: Error(disk)) is thrown on all ranks alike and leaves earlier checkpoints as they were.
std::filesystem::path write_checkpoint(const std::filesystem::path& checkpoints_dir, int64_t step, Ranks& ranks,
                                       const WriteFiles& write_files, const nlohmann::json& meta,
                                       const TextFiles& texts = {});
// Does the same on one rank.
std::filesystem::path write_checkpoint(const std::filesystem::path& checkpoints_dir, int64_t step,
                                       const WriteFiles& write_files, const nlohmann::json& meta,
                                       const TextFiles& texts = {});
// Does the same for parts alone.
std::filesystem::path write_checkpoint(const std::filesystem::path& checkpoints_dir, int64_t step,
                                       std::span<const CheckpointPart> parts, const nlohmann::json& meta,
                                       const TextFiles& texts = {}, int64_t part_file_bytes = kPartFileBytes);

// Removes all but the newest `count` checkpoints and those of the steps for which stays() is true. Here and below, a
// failed removal is only a warning.
void keep_newest_checkpoints(const std::filesystem::path& checkpoints_dir, int64_t count,
                             const std::function<bool(int64_t step)>& stays = {});

// The name in a folder of checkpoints that stands for the best one: a symbolic link to it. A path to the link means the
// checkpoint that it leads to at that moment.
inline constexpr const char* kBestCheckpoint = "best";
// Returns the step of the checkpoint that the link leads to; nothing without a link, or without that checkpoint.
std::optional<int64_t> linked_best_step(const std::filesystem::path& checkpoints_dir);
// Makes the link lead to the checkpoint of a step at once, or removes it. A failure is only a warning, and nothing but
// a link is ever replaced.
void link_best_checkpoint(const std::filesystem::path& checkpoints_dir, const std::optional<int64_t>& step);

// Removes checkpoints of steps above `step`, which remain when a run was resumed from an earlier checkpoint.
void remove_checkpoints_after(const std::filesystem::path& checkpoints_dir, int64_t step);

// Removes unfinished writes and removals that a kill left behind. Only the process that has locked the run directory
// may call this.
void remove_unfinished_checkpoints(const std::filesystem::path& checkpoints_dir);

// Returns the steps of all checkpoints, whole or damaged, newest first. A folder that does not exist has none.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& checkpoints_dir);

// Returns the newest checkpoint that verifies; others are skipped with a warning. When the run removes a checkpoint
// meanwhile, the folder is listed again.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& checkpoints_dir);

// Throws Error(config) for a folder that holds several runs, such as runs/; the message names them. Returns for any
// other path.
void fail_for_runs_below(const std::filesystem::path& path);

// Returns the checkpoint that a path means: a checkpoint, a run directory or its checkpoints folder. Throws
// Error(checkpoint).
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);
// Does the same on all ranks, which share the work of verifying: each reads some of the files. Afterwards the
// checkpoint is verified, also one that was named, and every rank may open it with verify = false.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path, Ranks& ranks);

// Calls use() with the checkpoint that a path means. A run that goes on meanwhile may remove the checkpoint while it is
// read; then use() is called again with the newest one, unless the path names that very checkpoint.
void use_checkpoint(const std::filesystem::path& given,
                    const std::function<void(const std::filesystem::path& checkpoint)>& use);
// Does the same on all ranks, with the checkpoint that rank 0 chooses. What use() throws on one rank must be thrown on
// all, so it does everything that may fail inside Ranks::on_all().
void use_checkpoint(const std::filesystem::path& given, Ranks& ranks,
                    const std::function<void(const std::filesystem::path& checkpoint)>& use);

// An open checkpoint. All damage is Error(checkpoint).
class CheckpointReader {
 public:
  // Verifies every file against the manifest, and meta.json, before anything else is read. Without `verify`, another
  // rank has verified the files; everything read here is still compared with its checksum.
  static CheckpointReader open(const std::filesystem::path& checkpoint, bool verify = true);

  const std::filesystem::path& path() const { return path_; }
  int64_t step() const { return step_; }
  const nlohmann::json& meta() const { return meta_; }
  const std::vector<std::string>& parts() const { return parts_; }  // without .h5, in the order written
  bool has_part(const std::string& file) const;
  CheckpointPart read_part(const std::string& file) const;  // tensors and texts sorted by name
  // Calls use() with the tensors of a part, one after the other; at most one file of the part is in memory.
  void visit_part(const std::string& file, const std::function<void(const NamedTensor&)>& use) const;
  std::string read_text(const std::string& file_name) const;
  // Opens a file to be read in pieces. It was verified when the checkpoint was opened, but may have changed since.
  File open_file(const std::string& file_name) const;

 private:
  void read_part_file(CheckpointPart& part, const ManifestFile& entry) const;
  void for_each_file(const std::string& part, const std::function<void(const ManifestFile&)>& use) const;
  const ManifestFile& find(const std::string& name) const;

  std::filesystem::path path_;
  int64_t step_ = 0;
  nlohmann::json meta_;
  std::vector<std::string> parts_;
  std::vector<ManifestFile> files_;
};

}  // namespace quire
