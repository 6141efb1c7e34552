// Uses the checkpoint that a path chooses, and another one where a run has removed it meanwhile.
#include "core/files/file_io.h"
#include "trainers/checkpoint/checkpoint.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

}  // namespace

void use_checkpoint(const fs::path& given, const std::function<void(const fs::path& checkpoint)>& use) {
  for (;;) {
    const fs::path checkpoint = resolve_checkpoint(given);
    try {
      return use(checkpoint);
    } catch (const std::exception&) {
      if (is_folder(checkpoint) || !is_folder(given)) throw;
    }
  }
}

void use_checkpoint(const fs::path& given, Ranks& ranks, const std::function<void(const fs::path& checkpoint)>& use) {
  if (ranks.size() == 1) return use_checkpoint(given, use);
  const Ranks::Operation operation(ranks, "loading the model");
  for (;;) {
    const fs::path checkpoint = resolve_checkpoint(given, ranks);
    try {
      return use(checkpoint);
    } catch (const std::exception&) {
      const bool gone = !is_folder(checkpoint) && is_folder(given);
      if (ranks.broadcast_from_root(gone ? "gone" : "") != "gone") throw;
    }
  }
}

}  // namespace quire
