// Reads safetensors files (github.com/huggingface/safetensors): a length (u64, little endian), a header in JSON, and
// the bytes of the tensors without gaps. Files may come from anyone: whatever is wrong is Error(data) that names the
// file and the tensor, before any tensor is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/file.h"
#include "trainers/exchange/stored_type.h"

namespace quire {

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;
// More tensors than any model has: entries of a header take memory.
inline constexpr size_t kMaxStoredTensors = 500'000;
inline constexpr size_t kMaxStoredAxes = 32;

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes behind the header
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;            // sorted by name
  std::map<std::string, std::string> metadata;  // __metadata__
};

// Reads the JSON of a header over `data_bytes` bytes of tensors.
SafetensorsHeader read_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& file);

// An open file. It is mapped: pages are read when they are used.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const StoredTensor* find(std::string_view name) const;  // nullptr without it
  // The bytes of a tensor are not aligned.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  // Frees the main memory behind the bytes of a tensor that is not read again.
  void forget(const StoredTensor& tensor) const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<MappedFile> map_;
  size_t data_ = 0;  // offset of the tensors
  SafetensorsHeader header_;
};

}  // namespace quire
