#include "trainers/exchange/safetensors_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"

namespace quire {

namespace {

std::string header_of(std::span<const PlannedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  nlohmann::ordered_json& said = header["__metadata__"];
  said["format"] = "pt";
  for (const auto& [key, value] : metadata) said[key] = value;
  int64_t begin = 0;
  for (const PlannedTensor& tensor : tensors) {
    const int64_t end = begin + tensor.bytes();
    header[tensor.name] = {{"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

int64_t PlannedTensor::bytes() const {
  int64_t bytes = size_of(type);
  for (const int64_t size : shape) bytes *= size;
  return bytes;
}

std::vector<PlannedTensor> in_file_order(std::vector<PlannedTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return std::pair(-size_of(a.type), std::string_view(a.name)) <
           std::pair(-size_of(b.type), std::string_view(b.name));
  });
  return tensors;
}

std::vector<std::vector<PlannedTensor>> in_shards(const std::vector<PlannedTensor>& tensors, int64_t max_bytes) {
  std::vector<std::vector<PlannedTensor>> shards(1);
  int64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors) {
    if (bytes > 0 && bytes + tensor.bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += tensor.bytes();
  }
  for (std::vector<PlannedTensor>& shard : shards) shard = in_file_order(std::move(shard));
  return shards;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const PlannedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), partial_(with_suffix(path, ".partial")), file_(File::create(partial_)) {
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  const auto data = static_cast<int64_t>(sizeof(length) + header.size());
  for (const PlannedTensor& tensor : tensors) {
    places_[tensor.name] = {data + left_, tensor.bytes()};
    left_ += tensor.bytes();
  }
  file_->write(std::as_bytes(std::span(&length, 1)));
  file_->write(std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void SafetensorsWriter::write(const std::string& tensor, int64_t offset, std::span<const std::byte> bytes) {
  const auto [first, size] = places_.at(tensor);
  QUIRE_CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= size,
              "safetensors: {} bytes from {} on do not fit {}, which has {}", bytes.size(), offset, tensor, size);
  left_ -= static_cast<int64_t>(bytes.size());
  for (int64_t at = first + offset; !bytes.empty();) {
    const ssize_t written = ::pwrite(file_->descriptor(), bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(ErrorKind::disk, "cannot write {}: {}", partial_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
    at += written;
  }
}

void SafetensorsWriter::finish() {
  QUIRE_CHECK(left_ == 0, "safetensors: {} bytes fewer than the header says", left_);
  file_->flush();
  rename_durably(partial_, path_);
  file_.reset();
}

}  // namespace quire
