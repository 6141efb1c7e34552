#include <algorithm>

#include "core/check.h"
#include "core/files/hdf5_file.h"
#include "core/files/hdf5_handle.h"

namespace quire {

using hdf5::Checker;
using hdf5::Handle;
using hdf5::Lock;

namespace {

constexpr size_t kImageIncrement = size_t{1} << 20;
constexpr size_t kPiece = size_t{1} << 20;

Handle make_space(const Checker& checker, const Shape& shape, const std::string& path) {
  if (shape.rank() == 0) return checker.handle(H5Screate(H5S_SCALAR), H5Sclose, "make the space of", path);
  std::vector<hsize_t> sizes;
  for (const int64_t size : shape) sizes.push_back(static_cast<hsize_t>(size));
  return checker.handle(H5Screate_simple(shape.rank(), sizes.data(), nullptr), H5Sclose, "make the space of", path);
}

void check_text(const std::string& path, const std::string& text) {
  QUIRE_CHECK(text.find('\0') == std::string::npos, "hdf5: the text for {} contains a NUL character", path);
}

}  // namespace

struct Hdf5Writer::Impl {
  Checker checker;
  Handle file;
  Handle link_properties;
  Handle dataset_properties;

  // An empty path means an image in memory.
  explicit Impl(const std::filesystem::path& path)
      : checker(path.empty() ? ErrorKind::internal : ErrorKind::disk, path.empty() ? "hdf5 image" : path.string()) {
    const Handle access = checker.handle(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "set up", "");
    checker.check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "set up", "");
    if (path.empty()) checker.check(H5Pset_fapl_core(access, kImageIncrement, 0), "set up", "");
    const std::string name = path.empty() ? hdf5::new_image_name() : path.string();
    file = checker.handle(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "create", "");
    link_properties = checker.handle(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "set up", "");
    checker.check(H5Pset_create_intermediate_group(link_properties, 1), "set up", "");
    checker.check(H5Pset_char_encoding(link_properties, H5T_CSET_UTF8), "set up", "");
    dataset_properties = checker.handle(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "set up", "");
    checker.check(H5Pset_obj_track_times(dataset_properties, false), "set up", "");
  }

  Handle create(const std::string& path, hid_t type, hid_t space) const {
    QUIRE_CHECK(file >= 0, "hdf5: {} is added to a finished file", path);
    return checker.handle(H5Dcreate2(file, path.c_str(), type, space, link_properties, dataset_properties, H5P_DEFAULT),
                          H5Dclose, "create", path);
  }

  void set_attribute(const std::string& path, const std::string& name, hid_t stored, hid_t given, const void* value) {
    QUIRE_CHECK(file >= 0, "hdf5: attribute {} is added to a finished file", name);
    if (!hdf5::exists(checker, file, path)) {
      checker.handle(H5Gcreate2(file, path.c_str(), link_properties, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "create",
                     path);
    }
    const Handle object = checker.handle(H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose, "open", path);
    if (checker.check(H5Aexists(object, name.c_str()), "look up attributes of", path) > 0) {
      checker.check(H5Adelete(object, name.c_str()), "replace an attribute of", path);
    }
    const Handle space = make_space(checker, {}, path);
    const Handle attribute = checker.handle(H5Acreate2(object, name.c_str(), stored, space, H5P_DEFAULT, H5P_DEFAULT),
                                            H5Aclose, "create an attribute of", path);
    checker.check(H5Awrite(attribute, given, value), "write an attribute of", path);
  }
};

Hdf5Writer::Hdf5Writer() {
  const Lock lock;
  impl_ = std::make_unique<Impl>(std::filesystem::path());
}

Hdf5Writer::Hdf5Writer(const std::filesystem::path& path) {
  QUIRE_CHECK(!path.empty(), "hdf5: a file on disk needs a path");
  const Lock lock;
  impl_ = std::make_unique<Impl>(path);
}

Hdf5Writer::~Hdf5Writer() {
  const Lock lock;
  impl_.reset();
}

void Hdf5Writer::put(const std::string& path, const Tensor& tensor) {
  QUIRE_CHECK(tensor.device() == kCpu && tensor.is_contiguous(), "hdf5: {} must be contiguous and on the CPU", path);
  const Lock lock;
  const Checker& checker = impl_->checker;
  const Handle space = make_space(checker, tensor.shape(), path);
  const Handle dataset = impl_->create(path, hdf5::file_type(tensor.dtype()), space);
  if (tensor.numel() > 0) {
    const hid_t type = hdf5::memory_type(tensor.dtype());
    checker.check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.raw()), "write", path);
  }
  const bool marked = tensor.dtype() == DType::bf16 || tensor.dtype() == DType::f8;
  if (marked) set_attribute(path, "dtype", std::string(name_of(tensor.dtype())));
}

void Hdf5Writer::put_stream(const std::string& path, DType dtype, int64_t count,
                            const std::function<void(std::span<std::byte>)>& fill) {
  const Lock lock;
  const Checker& checker = impl_->checker;
  const Handle space = make_space(checker, {count}, path);
  const Handle dataset = impl_->create(path, hdf5::file_type(dtype), space);
  const auto width = static_cast<int64_t>(size_of(dtype));
  std::vector<std::byte> buffer(kPiece);
  for (int64_t begin = 0; begin < count;) {
    const int64_t piece = std::min(count - begin, static_cast<int64_t>(kPiece) / width);
    fill(std::span(buffer).first(static_cast<size_t>(piece * width)));
    const hsize_t start = static_cast<hsize_t>(begin);
    const hsize_t size = static_cast<hsize_t>(piece);
    checker.check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, nullptr, &size, nullptr), "select in", path);
    const Handle piece_space = make_space(checker, {piece}, path);
    checker.check(H5Dwrite(dataset, hdf5::memory_type(dtype), piece_space, space, H5P_DEFAULT, buffer.data()), "write",
                  path);
    begin += piece;
  }
}

void Hdf5Writer::put_in_pieces(const std::string& path, DType dtype, const Shape& shape, const FillPiece& fill) {
  const Lock lock;
  const Checker& checker = impl_->checker;
  const Handle space = make_space(checker, shape, path);
  const Handle dataset = impl_->create(path, hdf5::file_type(dtype), space);
  if (dtype == DType::bf16 || dtype == DType::f8) set_attribute(path, "dtype", std::string(name_of(dtype)));
  if (shape.numel() == 0) return;
  if (shape.rank() == 0) {
    std::vector<std::byte> value(size_of(dtype));
    fill(0, value);
    checker.check(H5Dwrite(dataset, hdf5::memory_type(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, value.data()), "write",
                  path);
    return;
  }
  const int64_t row = shape.numel() / shape[0];
  const int64_t row_bytes = row * static_cast<int64_t>(size_of(dtype));
  const int64_t rows = std::clamp(static_cast<int64_t>(kPiece) / row_bytes, int64_t{1}, shape[0]);
  std::vector<std::byte> buffer(static_cast<size_t>(rows * row_bytes));
  std::vector<hsize_t> start(static_cast<size_t>(shape.rank()), 0);
  std::vector<hsize_t> size(shape.begin(), shape.end());
  for (int64_t begin = 0; begin < shape[0]; begin += rows) {
    const int64_t count = std::min(rows, shape[0] - begin);
    const std::span<std::byte> piece = std::span(buffer).first(static_cast<size_t>(count * row_bytes));
    fill(begin * row, piece);
    start[0] = static_cast<hsize_t>(begin);
    size[0] = static_cast<hsize_t>(count);
    checker.check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr), "select in",
                  path);
    const Handle piece_space = make_space(checker, {count * row}, path);
    checker.check(H5Dwrite(dataset, hdf5::memory_type(dtype), piece_space, space, H5P_DEFAULT, piece.data()), "write",
                  path);
  }
}

void Hdf5Writer::put_text(const std::string& path, const std::string& text) {
  check_text(path, text);
  const Lock lock;
  const Handle type = hdf5::text_type(impl_->checker);
  const Handle space = make_space(impl_->checker, {}, path);
  const Handle dataset = impl_->create(path, type, space);
  const char* characters = text.c_str();
  impl_->checker.check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &characters), "write", path);
}

void Hdf5Writer::put_texts(const std::string& path, const std::vector<std::string>& texts) {
  std::vector<const char*> characters;
  for (const std::string& text : texts) {
    check_text(path, text);
    characters.push_back(text.c_str());
  }
  const Lock lock;
  const Handle type = hdf5::text_type(impl_->checker);
  const Handle space = make_space(impl_->checker, {static_cast<int64_t>(texts.size())}, path);
  const Handle dataset = impl_->create(path, type, space);
  if (texts.empty()) return;
  impl_->checker.check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, characters.data()), "write", path);
}

void Hdf5Writer::set_attribute(const std::string& path, const std::string& name, int64_t value) {
  const Lock lock;
  impl_->set_attribute(path, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void Hdf5Writer::set_attribute(const std::string& path, const std::string& name, const std::string& value) {
  check_text(path, value);
  const Lock lock;
  const Handle type = hdf5::text_type(impl_->checker);
  const char* characters = value.c_str();
  impl_->set_attribute(path, name, type, type, &characters);
}

std::vector<std::byte> Hdf5Writer::finish() {
  const Lock lock;
  const Checker& checker = impl_->checker;
  QUIRE_CHECK(impl_->file >= 0, "hdf5: the file was finished before");
  checker.check(H5Fflush(impl_->file, H5F_SCOPE_GLOBAL), "flush", "");
  const ssize_t size = checker.check(H5Fget_file_image(impl_->file, nullptr, 0), "measure", "");
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  checker.check(H5Fget_file_image(impl_->file, bytes.data(), bytes.size()), "copy", "");
  if (!impl_->file.close()) checker.failed("close", "");
  return bytes;
}

void Hdf5Writer::close() {
  const Lock lock;
  QUIRE_CHECK(impl_->file >= 0, "hdf5: the file was finished before");
  if (!impl_->file.close()) impl_->checker.failed("close", "");
}

}  // namespace quire
