// The link to the best checkpoint.
#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "trainers/checkpoint/checkpoint.h"

namespace quire {

namespace fs = std::filesystem;

std::optional<int64_t> linked_best_step(const fs::path& checkpoints_dir) {
  std::error_code error;
  const fs::path target = fs::read_symlink(checkpoints_dir / kBestCheckpoint, error);
  if (error || target != target.filename() || !fs::is_directory(checkpoints_dir / target, error)) return std::nullopt;
  return checkpoint_step(target.string());
}

void link_best_checkpoint(const fs::path& checkpoints_dir, const std::optional<int64_t>& step) {
  const fs::path link = checkpoints_dir / kBestCheckpoint;
  try {
    const fs::file_type type = fs::symlink_status(link).type();
    if (type != fs::file_type::not_found && type != fs::file_type::symlink) {
      fail(ErrorKind::disk, "it is no link; move it away");
    }
    if (!step) {
      fs::remove(link);
      return;
    }
    if (linked_best_step(checkpoints_dir) == step) return;
    const fs::path partial = checkpoints_dir / fmt::format(".{}.partial", kBestCheckpoint);
    fs::remove(partial);
    fs::create_directory_symlink(checkpoint_name(*step), partial);
    rename_durably(partial, link);
  } catch (const std::exception& error) {
    log_warn(fmt::format("{}: cannot lead to the best checkpoint: {}", link.string(), error.what()));
  }
}

}  // namespace quire
