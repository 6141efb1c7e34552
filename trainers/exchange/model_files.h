// The safetensors files of a folder in Hugging Face layout: model.safetensors, or shards with
// model.safetensors.index.json.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainers/exchange/safetensors.h"

namespace quire {

// A tensor with the file that has it.
struct PlacedTensor {
  const SafetensorsFile* file = nullptr;
  const StoredTensor* tensor = nullptr;

  std::span<const std::byte> bytes() const { return file->bytes(*tensor); }
};

class ModelFiles {
 public:
  // Opens all files. Throws Error(data) when there is none, when the index names a file that is not plain or does not
  // exist, and when index and files contradict each other.
  static ModelFiles open(const std::filesystem::path& folder);

  const std::map<std::string, PlacedTensor, std::less<>>& tensors() const { return tensors_; }
  const PlacedTensor* find(std::string_view name) const;  // nullptr without it
  const std::filesystem::path& folder() const { return folder_; }

 private:
  void open_shards(const std::filesystem::path& index);
  const SafetensorsFile& add(const std::filesystem::path& path);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, PlacedTensor, std::less<>> tensors_;
};

}  // namespace quire
