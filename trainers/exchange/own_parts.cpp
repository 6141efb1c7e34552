#include "trainers/exchange/own_parts.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/json.h"
#include "trainers/checkpoint/row_state.h"
#include "trainers/exchange/safetensors_writer.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStatePrefix = "state-";
constexpr const char* kRowsText = "rows";
constexpr size_t kPieceBytes = size_t{1} << 20;

bool is_state(const std::string& part) {
  return part.starts_with(kStatePrefix);
}

std::string rows_file(const std::string& part) {
  return "rows-" + part.substr(kStatePrefix.size()) + ".safetensors";
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), static_cast<size_t>(tensor.bytes())};
}

std::vector<int64_t> sizes(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// Writes the bytes of rows, which follow each other row by row, as one tensor for each thing that a row carries.
WrittenTensors write_rows(const CheckpointReader& reader, const RowRange& range, const fs::path& folder) {
  const SavedRows saved = read_saved_rows(reader, range);
  const int64_t rows = range.end - range.begin;
  std::vector<PlannedTensor> planned;
  for (const RowPart& part : saved.parts) {
    std::vector<int64_t> shape{rows};
    shape.insert(shape.end(), part.shape.begin(), part.shape.end());
    planned.push_back({part.name, stored_type_of(part.dtype), shape});
  }
  SafetensorsWriter writer(folder / rows_file(range.part), in_file_order(planned));
  const File file = reader.open_file(range.part + ".rows");
  std::vector<std::byte> buffer(kPieceBytes);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t from = row * saved.row_bytes;
    for (const RowPart& part : saved.parts) {
      for (int64_t done = 0; done < part.bytes();) {
        const auto count = static_cast<size_t>(std::min(part.bytes() - done, static_cast<int64_t>(kPieceBytes)));
        const std::span<std::byte> piece = std::span(buffer).first(count);
        if (file.read_at(from, piece) != count) {
          fail(ErrorKind::checkpoint, "{}: ends inside row {}", file.path().string(), row);
        }
        writer.write(part.name, row * part.bytes() + done, piece);
        done += static_cast<int64_t>(count);
        from += static_cast<int64_t>(count);
      }
    }
  }
  writer.finish();
  return {static_cast<int64_t>(planned.size()), rows * saved.row_bytes, 1};
}

}  // namespace

WrittenTensors write_own_part(const CheckpointReader& reader, const std::string& part, const fs::path& folder) {
  std::vector<PlannedTensor> planned;
  WrittenTensors written{.files = 1};
  reader.visit_part(part, [&](const NamedTensor& stored) {
    planned.push_back({stored.name, stored_type_of(stored.tensor.dtype()), sizes(stored.tensor.shape())});
    written.bytes += stored.tensor.bytes();
  });
  written.tensors = static_cast<int64_t>(planned.size());
  std::map<std::string, std::string> metadata;
  if (is_state(part)) {
    for (const auto& [name, text] : reader.read_part(part).texts) metadata["text." + name] = text;
  }
  SafetensorsWriter writer(folder / (part + ".safetensors"), in_file_order(std::move(planned)), metadata);
  reader.visit_part(part, [&](const NamedTensor& stored) { writer.write(stored.name, 0, bytes_of(stored.tensor)); });
  writer.finish();
  if (!is_state(part)) return written;
  for (const RowRange& range : row_ranges(reader)) {
    if (range.part != part) continue;
    const WrittenTensors rows = write_rows(reader, range, folder);
    written.tensors += rows.tensors;
    written.bytes += rows.bytes;
    written.files += rows.files;
  }
  return written;
}

OwnPart::OwnPart(const fs::path& folder, std::string part)
    : part_(std::move(part)), file_(std::make_unique<SafetensorsFile>(folder / (part_ + ".safetensors"))) {
  for (const StoredTensor& tensor : file_->tensors()) {
    const bool good = dtype_of_stored(tensor.type) && tensor.shape.size() <= static_cast<size_t>(kMaxRank) &&
                      !tensor.name.empty() && tensor.name.front() != '.' &&
                      tensor.name.find('/') == std::string::npos && tensor.name.find('\0') == std::string::npos;
    if (!good) {
      fail(ErrorKind::data, "{}: tensor {} of type {} is none of a checkpoint", file_->path().string(), tensor.name,
           name_of(tensor.type));
    }
  }
  if (!is_state(part_)) return;
  rows_ = std::make_unique<SafetensorsFile>(folder / rows_file(part_));
  require_rows();
}

void OwnPart::require_rows() {
  const std::string where = file_->path().string();
  const auto text = file_->metadata().find(std::string("text.") + kRowsText);
  said_ = parse_json<nlohmann::ordered_json>(text == file_->metadata().end() ? "" : text->second);
  try {
    row_count_ = static_cast<int64_t>(said_.at("checksums").size());
    size_t parts = 0;
    for (const auto& part : said_.at("parts")) {
      ++parts;
      const auto name = part.at("name").get<std::string>();
      std::vector<int64_t> shape{row_count_};
      for (const auto& size : part.at("shape")) shape.push_back(json_integer(size));
      const StoredTensor* found = rows_->find(name);
      const bool good = found != nullptr && found->shape == shape && dtype_of_stored(found->type) &&
                        part.at("dtype") == name_of(*dtype_of_stored(found->type));
      if (!good) {
        fail(ErrorKind::data, "{}: tensor {} is missing, or is not what {} says", rows_->path().string(), name, where);
      }
    }
    if (parts != rows_->tensors().size()) {
      fail(ErrorKind::data, "{}: has {} tensors, and {} says {}", rows_->path().string(), rows_->tensors().size(),
           where, parts);
    }
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::data, "{}: does not say what its rows are; export the run again", where);
  }
}

void OwnPart::write(CheckpointFolder& folder) const {
  if (rows_) return write_rows(folder);
  std::vector<StreamedTensor> tensors;
  for (const StoredTensor& tensor : file_->tensors()) {
    const DType dtype = *dtype_of_stored(tensor.type);
    tensors.push_back({tensor.name, dtype, Shape(tensor.shape), [this, &tensor, dtype](int64_t begin, auto piece) {
                         const auto from = static_cast<size_t>(begin) * size_of(dtype);
                         std::memcpy(piece.data(), file_->bytes(tensor).data() + from, piece.size());
                         if (from + piece.size() == static_cast<size_t>(tensor.bytes())) file_->forget(tensor);
                       }});
  }
  folder.write_streamed(part_, tensors);
}

void OwnPart::write_rows(CheckpointFolder& folder) const {
  nlohmann::ordered_json checksums = nlohmann::ordered_json::array();
  folder.write_raw(part_ + ".rows", [&](const CheckpointFolder::WriteBytes& write) {
    for (int64_t row = 0; row < row_count_; ++row) {
      Checksum checksum;
      for (const auto& part : said_.at("parts")) {
        const StoredTensor& tensor = *rows_->find(part.at("name").get<std::string>());
        const auto size = static_cast<size_t>(tensor.bytes() / row_count_);
        const auto bytes = rows_->bytes(tensor).subspan(static_cast<size_t>(row) * size, size);
        checksum.add(bytes);
        write(bytes);
      }
      checksums.push_back(checksum.text());
    }
  });
  CheckpointPart counts{part_, {}, {}};
  for (const StoredTensor& tensor : file_->tensors()) {
    const Tensor values = Tensor::empty(Shape(tensor.shape), *dtype_of_stored(tensor.type));
    if (tensor.bytes() > 0) std::memcpy(values.raw(), file_->bytes(tensor).data(), static_cast<size_t>(tensor.bytes()));
    counts.tensors.push_back({tensor.name, values});
  }
  nlohmann::ordered_json said = said_;
  said["checksums"] = checksums;
  counts.texts.emplace_back(kRowsText, said.dump());
  folder.write(counts);
}

}  // namespace quire
