#include "trainers/checkpoint/checkpoint_manifest.h"

#include <algorithm>
#include <charconv>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"

namespace quire {

namespace {

constexpr const char* kFormat = "quire checkpoint";
constexpr int64_t kVersion = 1;
constexpr std::string_view kPrefix = "step-";

constexpr const char* kHint = "use another checkpoint of the run";

std::string checksum_of_text(const std::string& text) {
  return checksum_of(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.front() != '.';
}

[[noreturn]] void damaged(const std::filesystem::path& path, std::string_view what) {
  fail(ErrorKind::checkpoint, "{}: {}; {}", path.string(), what, kHint);
}

}  // namespace

std::string Manifest::to_json() const {
  nlohmann::ordered_json json{
      {"format", kFormat}, {"version", kVersion}, {"step", step}, {"files", nlohmann::json::array()}};
  for (const ManifestFile& file : files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.checksum}});
  }
  json["checksum"] = checksum_of_text(json.dump());
  return json.dump(1) + "\n";
}

Manifest Manifest::read(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / "manifest.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) damaged(path, "is missing");
  nlohmann::ordered_json json =
      parse_json<nlohmann::ordered_json>(read_text_file(path, {.kind = ErrorKind::checkpoint}));
  try {
    if (!json.is_object() || json.at("format") != kFormat) damaged(path, "is not the manifest of a checkpoint");
    const auto version = json_integer(json.at("version"));
    if (version != kVersion) {
      fail(ErrorKind::checkpoint, "{}: has version {}, this program reads {}; use a matching quire", path.string(),
           version, kVersion);
    }
    const auto checksum = json.at("checksum").get<std::string>();
    json.erase("checksum");
    if (checksum != checksum_of_text(json.dump())) damaged(path, "is damaged (wrong checksum)");
    Manifest manifest;
    manifest.step = json_integer(json.at("step"));
    for (const auto& file : json.at("files")) {
      manifest.files.push_back(
          {file.at("name").get<std::string>(), json_integer(file.at("bytes")), file.at("xxh3").get<std::string>()});
      if (!is_file_name(manifest.files.back().name)) damaged(path, "names a file outside the checkpoint");
    }
    const std::optional<int64_t> named = checkpoint_step(checkpoint.filename().string());
    if (named && *named != manifest.step) damaged(path, fmt::format("is that of step {}", manifest.step));
    return manifest;
  } catch (const nlohmann::json::exception&) {
    damaged(path, "is damaged");
  }
}

// Assigns the largest files first, each to the rank with the smallest total so far.
std::vector<ManifestFile> Manifest::share_of(int rank, int ranks) const {
  std::vector<ManifestFile> sorted = files;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ManifestFile& a, const ManifestFile& b) { return a.bytes > b.bytes; });
  std::vector<int64_t> load(static_cast<size_t>(ranks));
  std::vector<ManifestFile> mine;
  for (const ManifestFile& file : sorted) {
    const auto min_load = std::min_element(load.begin(), load.end());
    *min_load += file.bytes + 1;
    if (min_load - load.begin() == rank) mine.push_back(file);
  }
  return mine;
}

void Manifest::verify(const std::filesystem::path& checkpoint) const {
  verify(checkpoint, files);
}

void Manifest::verify(const std::filesystem::path& checkpoint, const std::vector<ManifestFile>& some) {
  for (const ManifestFile& file : some) {
    const std::filesystem::path path = checkpoint / file.name;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) damaged(path, "is missing");
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (error || bytes != file.bytes) damaged(path, fmt::format("has {} bytes instead of {}", bytes, file.bytes));
    if (checksum_of_file(path, ErrorKind::checkpoint) != file.checksum) damaged(path, "is damaged (wrong checksum)");
  }
}

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::optional<int64_t> checkpoint_step(const std::string& name) {
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (result.ec != std::errc{} || result.ptr != end || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

}  // namespace quire
