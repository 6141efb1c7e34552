// Writes safetensors files that the loaders of other programs take.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "trainers/exchange/stored_type.h"

namespace quire {

// A tensor that is to be written.
struct PlannedTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<int64_t> shape;

  int64_t bytes() const;
};

// Returns the order of the file: wide types first, so that every tensor is aligned to its type, then by name.
std::vector<PlannedTensor> in_file_order(std::vector<PlannedTensor> tensors);

// Writes PATH.partial; finish() flushes it and gives it its name. Without finish() nothing remains. Failures are
// Error(disk).
class SafetensorsWriter {
 public:
  // The tensors are in the order of the file. The metadata always has {"format": "pt"}, which transformers asks for.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const PlannedTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  // Takes the bytes of all tensors one after the other, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::optional<File> file_;
  int64_t left_ = 0;
};

}  // namespace quire
