#include <fcntl.h>

#include <algorithm>
#include <cstdio>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"
#include "core/log.h"
#include "trainers/checkpoint/checkpoint_folder.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kRemoved = ".removed";

fs::path hidden(const fs::path& checkpoints_dir, int64_t step, std::string_view suffix) {
  return with_suffix(checkpoints_dir / fmt::format(".{}", checkpoint_name(step)), suffix);
}

// Removes a folder, or only warns: an unused folder costs only space and is no reason to end a run. On network file
// systems a folder stays while a process has one of its files open.
void remove_if_possible(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return;
  log_warn(fmt::format("{}: cannot be removed now: {}; it is tried again with the next checkpoint", path.string(),
                       error.message()));
}

// Moves a written checkpoint to its name. When a checkpoint of the same step exists (a run was resumed from an earlier
// one), the two are exchanged atomically, so that one of them has the name at every moment.
void move_into_place(const fs::path& partial, const fs::path& target) {
  if (fs::exists(target)) {
    if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      flush_directory(target.parent_path());
      return remove_if_possible(partial);
    }
    // For file systems without exchange.
    const fs::path removed = target.parent_path() / fmt::format(".{}{}", target.filename().string(), kRemoved);
    rename_durably(target, removed);
    rename_durably(partial, target);
    return remove_if_possible(removed);
  }
  rename_durably(partial, target);
}

// Converts the list of files that a rank has written to a text for root, and back.
std::string list_files(const std::vector<ManifestFile>& files) {
  nlohmann::json list = nlohmann::json::array();
  for (const ManifestFile& file : files) list.push_back({file.name, file.bytes, file.checksum});
  return list.dump();
}

void add_files(std::vector<ManifestFile>& files, const std::string& list) {
  for (const nlohmann::json& file : parse_json(list)) {
    files.push_back({file.at(0).get<std::string>(), file.at(1).get<int64_t>(), file.at(2).get<std::string>()});
  }
}

// Removes the unfinished folder after all ranks have stopped. While another rank may still write, its files stay; they
// are removed when the run is resumed.
void remove_when_all_have_stopped(const fs::path& partial, Ranks& ranks) {
  try {
    ranks.barrier();
  } catch (const SharedError&) {
    return;  // a rank has failed or does not answer, so the run ends
  }
  std::error_code ignored;
  if (ranks.is_root()) fs::remove_all(partial, ignored);
}

void remove_checkpoint(const fs::path& checkpoints_dir, int64_t step) {
  // The folder is renamed first, because a half-removed checkpoint under its own name would look damaged.
  const fs::path removed = hidden(checkpoints_dir, step, kRemoved);
  try {
    rename_durably(checkpoints_dir / checkpoint_name(step), removed);
  } catch (const Error& error) {
    return log_warn(fmt::format("an old checkpoint cannot be removed: {}; remove it by hand", error.what()));
  }
  remove_if_possible(removed);
}

}  // namespace

void remove_unfinished_checkpoints(const fs::path& checkpoints_dir) {
  try {
    std::vector<fs::path> remains;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_dir)) {
      const std::string name = entry.path().filename().string();
      const std::string suffix = entry.path().extension().string();
      if (name.rfind(".step-", 0) == 0 && (suffix == kPartial || suffix == kRemoved)) remains.push_back(entry.path());
    }
    for (const fs::path& path : remains) remove_if_possible(path);
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::disk, "{}: cannot be read: {}", checkpoints_dir.string(), error.what());
  }
}

fs::path write_checkpoint(const fs::path& checkpoints_dir, int64_t step, Ranks& ranks, const WriteFiles& write_files,
                          const nlohmann::json& meta, const TextFiles& texts) {
  QUIRE_CHECK(step >= 0, "write_checkpoint: step {}", step);
  const fs::path partial = hidden(checkpoints_dir, step, kPartial);
  const fs::path target = checkpoints_dir / checkpoint_name(step);
  const auto named = [&](const auto& work) {
    return [&] {
      try {
        work();
      } catch (const fs::filesystem_error& error) {
        fail(ErrorKind::disk, "checkpoint {}: {}", target.string(), error.what());
      }
    };
  };
  CheckpointFolder folder(partial);
  try {
    ranks.on_root(named([&] {
      fs::create_directories(checkpoints_dir);
      remove_unfinished_checkpoints(checkpoints_dir);
      fs::create_directory(partial);
    }));
    {
      const Ranks::Operation operation(ranks, "writing state and moments");
      ranks.on_all(named([&] { write_files(folder); }));
    }
    const std::vector<std::string> lists = ranks.gather(list_files(folder.files()));
    ranks.on_root(named([&] {
      std::vector<ManifestFile> files;
      for (const std::string& list : lists) add_files(files, list);
      CheckpointFolder rest(partial);
      rest.write("meta.json", meta.dump(1) + "\n");
      for (const auto& [name, content] : texts) rest.write(name, content);
      files.insert(files.end(), rest.files().begin(), rest.files().end());
      finish_checkpoint(partial, step, files);
      move_into_place(partial, target);
    }));
  } catch (...) {
    remove_when_all_have_stopped(partial, ranks);
    throw;
  }
  return target;
}

fs::path write_checkpoint(const fs::path& checkpoints_dir, int64_t step, const WriteFiles& write_files,
                          const nlohmann::json& meta, const TextFiles& texts) {
  Ranks one;
  return write_checkpoint(checkpoints_dir, step, one, write_files, meta, texts);
}

fs::path write_checkpoint(const fs::path& checkpoints_dir, int64_t step, std::span<const CheckpointPart> parts,
                          const nlohmann::json& meta, const TextFiles& texts, int64_t part_file_bytes) {
  const auto write_parts = [&](CheckpointFolder& folder) {
    for (const CheckpointPart& part : parts) folder.write(part, part_file_bytes);
  };
  return write_checkpoint(checkpoints_dir, step, write_parts, meta, texts);
}

void keep_newest_checkpoints(const fs::path& checkpoints_dir, int64_t count,
                             const std::function<bool(int64_t step)>& stays) {
  QUIRE_CHECK(count >= 1, "keep_newest_checkpoints: count {}", count);
  const std::vector<int64_t> steps = checkpoint_steps(checkpoints_dir);
  for (size_t i = static_cast<size_t>(count); i < steps.size(); ++i) {
    if (!stays || !stays(steps[i])) remove_checkpoint(checkpoints_dir, steps[i]);
  }
}

void remove_checkpoints_after(const fs::path& checkpoints_dir, int64_t step) {
  for (const int64_t other : checkpoint_steps(checkpoints_dir)) {
    if (other > step) remove_checkpoint(checkpoints_dir, other);
  }
}

}  // namespace quire
