// Changes the files of a checkpoint and makes their checksums fit, as another program may have written them.
#pragma once

#include <algorithm>
#include <functional>

#include "core/files/file_io.h"
#include "trainers/checkpoint/checkpoint_folder.h"

namespace quire::test {

// Writes the manifest of the files that are there now.
inline void seal_checkpoint(const std::filesystem::path& checkpoint) {
  std::vector<ManifestFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name == "manifest.json") continue;
    files.push_back({name, static_cast<int64_t>(entry.file_size()), checksum_of_file(entry.path())});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  finish_checkpoint(checkpoint, checkpoint_step(checkpoint.filename().string()).value(), files);
}

// Changes the description of the rows in state-BEGIN-END.h5.
inline void edit_description(const std::filesystem::path& checkpoint, const std::string& state_part,
                             const std::function<void(nlohmann::ordered_json& rows)>& edit) {
  CheckpointPart part = CheckpointReader::open(checkpoint).read_part(state_part);
  std::string& text = part.texts.at(0).second;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  edit(json);
  text = json.dump();
  CheckpointFolder(checkpoint).write(part);
  seal_checkpoint(checkpoint);
}

// Changes the bytes of state-BEGIN-END.rows.
inline void edit_rows(const std::filesystem::path& checkpoint, const std::string& state_part,
                      const std::function<void(size_t row, std::span<std::byte> bytes)>& edit) {
  const std::filesystem::path file = checkpoint / (state_part + ".rows");
  edit_description(checkpoint, state_part, [&](nlohmann::ordered_json& json) {
    std::vector<std::byte> bytes = read_file(file);
    const auto row_bytes = json.at("row_bytes").get<size_t>();
    for (size_t row = 0; row < json.at("checksums").size(); ++row) {
      const std::span<std::byte> of_row = std::span(bytes).subspan(row * row_bytes, row_bytes);
      edit(row, of_row);
      json["checksums"][row] = checksum_of(of_row);
    }
    write_file_durably(file, bytes);
  });
}

}  // namespace quire::test
