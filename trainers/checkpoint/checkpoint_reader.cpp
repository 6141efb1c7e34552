#include <algorithm>
#include <set>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"
#include "core/json.h"
#include "core/log.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/checkpoint_meta.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartEnding = ".h5";

// Returns the part whose first file has this name.
std::optional<std::string> part_of(const std::string& name) {
  if (name.size() <= kPartEnding.size() || name.substr(name.size() - kPartEnding.size()) != kPartEnding) return {};
  std::string part = name.substr(0, name.size() - kPartEnding.size());
  if (part.find('.') != std::string::npos) return {};
  return part;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

void require_folder(const fs::path& path) {
  if (is_folder(path)) return;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    if (path.filename() == kBestCheckpoint && is_folder(path.parent_path())) {
      fail(ErrorKind::checkpoint, "{}: the run keeps no best checkpoint; it does with checkpoint.best=true",
           path.string());
    }
    fail(ErrorKind::checkpoint, "{}: no such folder; give a run or a checkpoint", path.string());
  }
  const std::string ending = path.extension().string();
  fail(ErrorKind::checkpoint, "{}: is a {}, not the folder of a run or a checkpoint{}", path.string(),
       ending == ".yaml" || ending == ".yml" ? "configuration" : "file",
       ending == ".yaml" || ending == ".yml" ? "; give the folder that quire train made with it, such as runs/NAME"
                                             : "");
}

}  // namespace

void fail_for_runs_below(const fs::path& path) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> runs;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (is_folder(entry.path() / "checkpoints")) runs.push_back(entry.path().string());
  }
  if (runs.empty()) return;
  std::sort(runs.begin(), runs.end());
  const size_t more = runs.size() - std::min(runs.size(), kNamed);
  runs.resize(runs.size() - more);
  fail(ErrorKind::config, "{}: is a folder of runs; give one of them: {}{}", path.string(), fmt::join(runs, ", "),
       more > 0 ? fmt::format(" or one of {} more", more) : "");
}

namespace {

bool is_checkpoint(const fs::path& path) {
  return checkpoint_step(path.filename().string()).has_value() || fs::exists(path / "manifest.json");
}

fs::path folder_of_checkpoints(const fs::path& path) {
  return is_folder(path / "checkpoints") ? path / "checkpoints" : path;
}

[[noreturn]] void fail_without_checkpoint(const fs::path& path) {
  fail_for_runs_below(path);
  const bool is_run = fs::exists(path / "config.yaml") && is_folder(path / "checkpoints");
  fail(ErrorKind::checkpoint, "{}: {}", path.string(),
       !is_run                                          ? "holds no whole checkpoint; give a run or a checkpoint"
       : checkpoint_steps(path / "checkpoints").empty() ? "the run holds no checkpoint yet, or they were moved away"
                                                        : "the run holds no whole checkpoint: all of them are damaged");
}

// Removes a final slash: "RUN/checkpoints/step-00000005/", as a shell completes it, ends in an empty name.
fs::path without_slash(const fs::path& given) {
  return given.has_filename() ? given : given.parent_path();
}

// Returns the checkpoint that the link to the best one leads to; any other path as it is.
fs::path behind_link(const fs::path& path) {
  if (path.filename() != kBestCheckpoint) return path;
  const std::optional<int64_t> step = linked_best_step(path.parent_path());
  return step ? path.parent_path() / checkpoint_name(*step) : path;
}

// Verifies a checkpoint; errors are thrown on all ranks alike.
void verify_on_ranks(const fs::path& checkpoint, Ranks& ranks) {
  const Ranks::Operation operation(ranks, "verifying the checkpoint");
  ranks.on_all([&] {
    const Manifest manifest = Manifest::read(checkpoint);
    Manifest::verify(checkpoint, manifest.share_of(ranks.rank(), ranks.size()));
    CheckpointReader::open(checkpoint, false);
  });
}

}  // namespace

std::string part_file_name(const std::string& part, int number) {
  return part + (number == 1 ? "" : fmt::format(".{}", number)) + std::string(kPartEnding);
}

CheckpointReader CheckpointReader::open(const fs::path& checkpoint, bool verify) {
  if (!is_folder(checkpoint)) fail(ErrorKind::checkpoint, "{}: no such checkpoint folder", checkpoint.string());
  const Manifest manifest = Manifest::read(checkpoint);
  if (verify) manifest.verify(checkpoint);
  CheckpointReader reader;
  reader.path_ = checkpoint;
  reader.step_ = manifest.step;
  reader.files_ = manifest.files;
  for (const ManifestFile& file : manifest.files) {
    if (const auto part = part_of(file.name)) reader.parts_.push_back(*part);
  }
  reader.meta_ = parse_json(reader.read_text("meta.json"));
  require_sound_meta(reader.meta_, reader.step_, (checkpoint / "meta.json").string());
  return reader;
}

bool CheckpointReader::has_part(const std::string& file) const {
  return std::find(parts_.begin(), parts_.end(), file) != parts_.end();
}

const ManifestFile& CheckpointReader::find(const std::string& name) const {
  const auto found =
      std::find_if(files_.begin(), files_.end(), [&](const ManifestFile& file) { return file.name == name; });
  if (found == files_.end()) fail(ErrorKind::checkpoint, "{}: has no file {}", path_.string(), name);
  return *found;
}

// Checks the bytes that are then parsed, so a change of the file in between has no effect.
void CheckpointReader::read_part_file(CheckpointPart& part, const ManifestFile& entry) const {
  const std::string name = (path_ / entry.name).string();
  std::vector<std::byte> bytes = read_file(name, ErrorKind::checkpoint);
  if (checksum_of(bytes) != entry.checksum) fail(ErrorKind::checkpoint, "{}: changed while it was read", name);
  const Hdf5Reader reader = Hdf5Reader::open_image(std::move(bytes), name, ErrorKind::checkpoint);
  if (reader.has("tensors")) {
    for (const std::string& tensor : reader.list("tensors")) {
      part.tensors.push_back({tensor, reader.get("tensors/" + tensor)});
    }
  }
  if (reader.has("texts")) {
    for (const std::string& text : reader.list("texts"))
      part.texts.emplace_back(text, reader.get_text("texts/" + text));
  }
}

void CheckpointReader::for_each_file(const std::string& part,
                                     const std::function<void(const ManifestFile&)>& use) const {
  use(find(part_file_name(part, 1)));
  for (int number = 2;; ++number) {
    const std::string name = part_file_name(part, number);
    const auto found =
        std::find_if(files_.begin(), files_.end(), [&](const ManifestFile& entry) { return entry.name == name; });
    if (found == files_.end()) return;
    use(*found);
  }
}

CheckpointPart CheckpointReader::read_part(const std::string& file) const {
  CheckpointPart part{file, {}, {}};
  for_each_file(file, [&](const ManifestFile& entry) { read_part_file(part, entry); });
  std::sort(part.tensors.begin(), part.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return part;
}

void CheckpointReader::visit_part(const std::string& file, const std::function<void(const NamedTensor&)>& use) const {
  for_each_file(file, [&](const ManifestFile& entry) {
    CheckpointPart part{file, {}, {}};
    read_part_file(part, entry);
    for (const NamedTensor& tensor : part.tensors) use(tensor);
  });
}

std::string CheckpointReader::read_text(const std::string& file_name) const {
  const ManifestFile& entry = find(file_name);
  std::string text = read_text_file(path_ / entry.name, {.kind = ErrorKind::checkpoint, .max_bytes = int64_t{1} << 30});
  if (checksum_of(std::as_bytes(std::span<const char>(text.data(), text.size()))) != entry.checksum) {
    fail(ErrorKind::checkpoint, "{}: changed while it was read", (path_ / entry.name).string());
  }
  return text;
}

File CheckpointReader::open_file(const std::string& file_name) const {
  return File::open(path_ / find(file_name).name, ErrorKind::checkpoint);
}

std::vector<int64_t> checkpoint_steps(const fs::path& checkpoints_dir) {
  std::vector<int64_t> steps;
  if (!is_folder(checkpoints_dir)) return steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_dir, error)) {
    if (const auto step = checkpoint_step(entry.path().filename().string())) steps.push_back(*step);
  }
  if (error) fail(ErrorKind::checkpoint, "{}: cannot be read: {}", checkpoints_dir.string(), error.message());
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::optional<fs::path> latest_checkpoint(const fs::path& checkpoints_dir) {
  std::set<int64_t> damaged;
  for (bool vanished = true; vanished;) {
    vanished = false;
    for (const int64_t step : checkpoint_steps(checkpoints_dir)) {
      if (damaged.count(step) > 0) continue;
      const fs::path path = checkpoints_dir / checkpoint_name(step);
      try {
        CheckpointReader::open(path);
        return path;
      } catch (const Error& error) {
        // A checkpoint that vanished was removed by its run, which has newer ones by now.
        vanished = !is_folder(path);
        if (vanished) break;
        log_warn(fmt::format("checkpoint skipped: {}", error.what()));
        damaged.insert(step);
      }
    }
  }
  return std::nullopt;
}

fs::path resolve_checkpoint(const fs::path& given) {
  const fs::path path = behind_link(without_slash(given));
  require_folder(path);
  if (is_checkpoint(path)) return path;
  if (const auto latest = latest_checkpoint(folder_of_checkpoints(path))) return *latest;
  fail_without_checkpoint(path);
}

fs::path resolve_checkpoint(const fs::path& given, Ranks& ranks) {
  // The link may lead elsewhere a moment later, so root alone follows it.
  const fs::path path = ranks.found_by_root([&] { return behind_link(without_slash(given)).string(); });
  const bool named = !ranks
                          .found_by_root([&] {
                            require_folder(path);
                            return is_checkpoint(path) ? "yes" : "";
                          })
                          .empty();
  ranks.on_some(!ranks.is_root(), [&] {
    if (is_folder(path)) return;
    fail(ErrorKind::disk,
         "{}: rank 0 has the run here, but this rank does not see it; put it on a file system that all hosts share",
         path.string());
  });
  if (named) {
    verify_on_ranks(path, ranks);
    return path;
  }
  const fs::path folder = ranks.found_by_root([&] { return folder_of_checkpoints(path).string(); });
  std::set<int64_t> damaged;
  for (;;) {
    // The folder is listed again each time, because a running process may have removed a checkpoint and written
    // another.
    const std::string next = ranks.found_by_root([&]() -> std::string {
      for (const int64_t step : checkpoint_steps(folder)) {
        if (damaged.count(step) == 0) return checkpoint_name(step);
      }
      fail_without_checkpoint(path);
    });
    try {
      verify_on_ranks(folder / next, ranks);
      return folder / next;
    } catch (const Error& error) {
      const bool vanished = !ranks.found_by_root([&] { return is_folder(folder / next) ? "" : "yes"; }).empty();
      if (vanished) continue;
      if (ranks.is_root()) log_warn(fmt::format("checkpoint skipped: {}", error.what()));
      damaged.insert(*checkpoint_step(next));
    }
  }
}

}  // namespace quire
