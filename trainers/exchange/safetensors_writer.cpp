#include "trainers/exchange/safetensors_writer.h"

#include <algorithm>
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

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const PlannedTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), partial_(with_suffix(path, ".partial")), file_(File::create(partial_)) {
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  for (const PlannedTensor& tensor : tensors) left_ += tensor.bytes();
  file_->write(std::as_bytes(std::span(&length, 1)));
  file_->write(std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  QUIRE_CHECK(static_cast<int64_t>(bytes.size()) <= left_, "safetensors: {} bytes more than the header says",
              static_cast<int64_t>(bytes.size()) - left_);
  file_->write(bytes);
  left_ -= static_cast<int64_t>(bytes.size());
}

void SafetensorsWriter::finish() {
  QUIRE_CHECK(left_ == 0, "safetensors: {} bytes fewer than the header says", left_);
  file_->flush();
  rename_durably(partial_, path_);
  file_.reset();
}

}  // namespace quire
