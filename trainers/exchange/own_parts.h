// A part of a checkpoint as a safetensors file, there and back, bit for bit.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/exchange/safetensors.h"

namespace quire {

struct WrittenTensors {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t files = 0;
};

// Writes a part of a checkpoint to FOLDER/PART.safetensors, and what rows carry to FOLDER/rows-....safetensors.
WrittenTensors write_own_part(const CheckpointReader& reader, const std::string& part,
                              const std::filesystem::path& folder);

// An exported part that is read.
class OwnPart {
 public:
  // Throws Error(data) when the file is damaged, or has tensors that no checkpoint has.
  OwnPart(const std::filesystem::path& folder, std::string part);

  const std::string& name() const { return part_; }
  const SafetensorsFile& file() const { return *file_; }
  void write(CheckpointFolder& folder) const;

 private:
  void require_rows();
  void write_rows(CheckpointFolder& folder) const;

  std::string part_;
  std::unique_ptr<SafetensorsFile> file_;
  std::unique_ptr<SafetensorsFile> rows_;  // nullptr but for state
  nlohmann::ordered_json said_;            // of the rows
  int64_t row_count_ = 0;
};

}  // namespace quire
