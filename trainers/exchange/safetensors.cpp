#include "trainers/exchange/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"

namespace quire {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

namespace {

constexpr size_t kLengthBytes = 8;

// Reads the length of the header, and checks that the file has room for it.
size_t header_bytes(const File& file, const std::string& name) {
  uint64_t length = 0;
  if (file.read_at(0, std::as_writable_bytes(std::span(&length, 1))) != kLengthBytes) {
    fail(ErrorKind::data, "{}: has {} bytes; a safetensors file begins with eight that give the length of its header",
         name, file.size());
  }
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    fail(ErrorKind::data,
         "{}: the header is said to have {} bytes, and at most {} are read; is this a safetensors file?", name, length,
         kMaxHeaderBytes);
  }
  if (static_cast<int64_t>(length) > file.size() - static_cast<int64_t>(kLengthBytes)) {
    fail(ErrorKind::data, "{}: the header is said to have {} bytes, and the file has {}; it is cut off or damaged",
         name, length, file.size());
  }
  return static_cast<size_t>(length);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const File file = File::open(path, ErrorKind::data);
  const std::string name = path.string();
  const size_t length = header_bytes(file, name);
  map_ = std::make_unique<MappedFile>(file);
  const std::span<const std::byte> all = map_->bytes();
  if (all.size() < kLengthBytes + length) fail(ErrorKind::data, "{}: became shorter while it was read", name);
  data_ = kLengthBytes + length;
  const std::string_view json(reinterpret_cast<const char*>(all.data()) + kLengthBytes, length);
  header_ = read_safetensors_header(json, static_cast<int64_t>(all.size() - data_), name);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors().begin(), tensors().end(), name,
                       [](const StoredTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != tensors().end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  return map_->bytes().subspan(data_ + static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.bytes()));
}

void SafetensorsFile::forget(const StoredTensor& tensor) const {
  const std::span<const std::byte> all = bytes(tensor);
  if (!all.empty()) forget_pages(const_cast<std::byte*>(all.data()), all.size());
}

}  // namespace quire
