// Writes safetensors files that the loaders of other programs take.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
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

// Divides tensors into files of at most so many bytes; a larger tensor has a file for itself.
std::vector<std::vector<PlannedTensor>> in_shards(const std::vector<PlannedTensor>& tensors, int64_t max_bytes);

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

  // Writes bytes of a tensor from an offset in it. Tensors and pieces come in any order, each byte once.
  void write(const std::string& tensor, int64_t offset, std::span<const std::byte> bytes);
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::optional<File> file_;
  std::map<std::string, std::pair<int64_t, int64_t>> places_;  // first byte in the file, number of bytes
  int64_t left_ = 0;
};

}  // namespace quire
