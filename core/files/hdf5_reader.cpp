#include <algorithm>

#include "core/check.h"
#include "core/files/hdf5_file.h"
#include "core/files/hdf5_handle.h"

namespace quire {

using hdf5::Checker;
using hdf5::Handle;
using hdf5::Lock;

namespace {

Handle access_properties(const Checker& checker) {
  Handle access = checker.handle(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "set up", "");
  checker.check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "set up", "");
  return access;
}

// Returns the tensor type for a stored type; types that Tensor lacks are widened.
DType element_type(const Checker& checker, hid_t type, const std::string& path) {
  const H5T_class_t kind = H5Tget_class(type);
  const size_t size = H5Tget_size(type);
  if (kind == H5T_ENUM) {  // h5py's bool
    const Handle base = checker.handle(H5Tget_super(type), H5Tclose, "read the type of", path);
    return element_type(checker, base, path);
  }
  if (kind == H5T_FLOAT && size <= 8) return size == 8 ? DType::f64 : DType::f32;
  if (kind == H5T_INTEGER) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (size == 1) return is_signed ? DType::i8 : DType::u8;
    if (size == 2) return is_signed ? DType::i32 : DType::u16;
    if (size == 4) return is_signed ? DType::i32 : DType::i64;
    if (size == 8) return DType::i64;
  }
  checker.wrong(path, "has an element type that is neither a number nor a bool");
}

std::string strip_padding(const std::string& text, H5T_str_t padding) {
  if (padding == H5T_STR_NULLTERM) return text.substr(0, text.find('\0'));
  const size_t last = text.find_last_not_of(padding == H5T_STR_NULLPAD ? '\0' : ' ');
  return text.substr(0, last == std::string::npos ? 0 : last + 1);
}

// Reads the strings of a dataset or an attribute, of fixed or variable length; read(type, buffer) is H5Dread or
// H5Aread.
template <typename Read>
std::vector<std::string> read_texts(const Checker& checker, hid_t type, hid_t space, const std::string& path,
                                    const Read& read) {
  if (H5Tget_class(type) != H5T_STRING) checker.wrong(path, "is not text");
  const auto count = static_cast<size_t>(checker.check(H5Sget_simple_extent_npoints(space), "measure", path));
  std::vector<std::string> texts;
  if (count == 0) return texts;
  if (checker.check(H5Tis_variable_str(type), "read the type of", path) == 0) {
    const size_t width = H5Tget_size(type);
    std::string buffer(count * width, '\0');
    checker.check(read(type, buffer.data()), "read", path);
    for (size_t i = 0; i < count; ++i) {
      texts.push_back(strip_padding(buffer.substr(i * width, width), H5Tget_strpad(type)));
    }
    return texts;
  }
  const Handle memory = hdf5::text_type(checker);
  // HDF5 does not convert between character sets, so the memory type takes that of the file.
  checker.check(H5Tset_cset(memory, H5Tget_cset(type)), "read the type of", path);
  std::vector<char*> pointers(count, nullptr);
  checker.check(read(memory, pointers.data()), "read", path);
  for (const char* characters : pointers) texts.emplace_back(characters == nullptr ? "" : characters);
  checker.check(H5Dvlen_reclaim(memory, space, H5P_DEFAULT, pointers.data()), "free", path);
  return texts;
}

}  // namespace

struct Hdf5Reader::Impl {
  Checker checker;
  Handle file;

  struct Opened {
    Handle object;
    Handle type;
    Handle space;
  };

  Opened dataset(const std::string& path) const {
    Opened opened;
    opened.object = checker.handle(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, "open dataset", path);
    opened.type = checker.handle(H5Dget_type(opened.object), H5Tclose, "read the type of", path);
    opened.space = checker.handle(H5Dget_space(opened.object), H5Sclose, "read the space of", path);
    return opened;
  }

  Opened attribute(const std::string& path, const std::string& name) const {
    Opened opened;
    opened.object = checker.handle(H5Aopen_by_name(file, path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                                   H5Aclose, "open attribute", label(path, name));
    opened.type = checker.handle(H5Aget_type(opened.object), H5Tclose, "read the type of", label(path, name));
    opened.space = checker.handle(H5Aget_space(opened.object), H5Sclose, "read the space of", label(path, name));
    return opened;
  }

  // Refuses a dataset whose file is too small for it: the extent of a damaged dataset could claim any amount of memory.
  void require_stored(const Opened& opened, int64_t bytes, const std::string& path) const {
    const Handle properties = checker.handle(H5Dget_create_plist(opened.object), H5Pclose, "read the layout of", path);
    hsize_t file_bytes = 0;
    checker.check(H5Fget_filesize(file, &file_bytes), "measure", "");
    if (H5Pget_layout(properties) != H5D_CONTIGUOUS || bytes <= static_cast<int64_t>(file_bytes)) return;
    checker.wrong(path, fmt::format("has {} bytes in a file of {}: damaged", bytes, file_bytes));
  }

  DatasetInfo info(const Opened& opened, const std::string& path) const {
    DType dtype = element_type(checker, opened.type, path);
    for (const auto& [stored, marked] : {std::pair{DType::u16, DType::bf16}, std::pair{DType::u8, DType::f8}}) {
      if (dtype != stored || checker.check(H5Aexists(opened.object, "dtype"), "look up attributes of", path) == 0) {
        continue;
      }
      const Opened mark = attribute(path, "dtype");
      if (H5Tget_class(mark.type) != H5T_STRING) continue;
      if (attribute_texts(mark, path) == std::vector<std::string>{name_of(marked)}) dtype = marked;
    }
    const int rank = checker.check(H5Sget_simple_extent_ndims(opened.space), "measure", path);
    if (rank > kMaxRank) checker.wrong(path, fmt::format("has {} dimensions, more than {}", rank, kMaxRank));
    std::vector<hsize_t> extent(static_cast<size_t>(rank));
    checker.check(H5Sget_simple_extent_dims(opened.space, extent.data(), nullptr), "measure", path);
    return {dtype, Shape(std::vector<int64_t>(extent.begin(), extent.end()))};
  }

  std::vector<std::string> attribute_texts(const Opened& opened, const std::string& path) const {
    return read_texts(checker, opened.type, opened.space, path,
                      [&](hid_t type, void* buffer) { return H5Aread(opened.object, type, buffer); });
  }

  // Reads one number as the given memory type.
  void read_number(const std::string& path, const std::string& name, bool allow_float, hid_t memory,
                   void* value) const {
    const Opened opened = attribute(path, name);
    const H5T_class_t kind = H5Tget_class(opened.type);
    if (H5Sget_simple_extent_npoints(opened.space) != 1) checker.wrong(label(path, name), "is not a single number");
    if (kind != H5T_INTEGER && kind != H5T_ENUM && !(allow_float && kind == H5T_FLOAT)) {
      checker.wrong(label(path, name), allow_float ? "is not a number" : "is not an integer");
    }
    checker.check(H5Aread(opened.object, memory, value), "read", label(path, name));
  }

  static std::string label(const std::string& path, const std::string& name) {
    return fmt::format("attribute {} of {}", name, path);
  }
};

Hdf5Reader::Hdf5Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Hdf5Reader::Hdf5Reader(Hdf5Reader&&) noexcept = default;

Hdf5Reader& Hdf5Reader::operator=(Hdf5Reader&& other) noexcept {
  impl_.swap(other.impl_);
  return *this;
}

Hdf5Reader::~Hdf5Reader() {
  const Lock lock;
  impl_.reset();
}

Hdf5Reader Hdf5Reader::open_image(std::vector<std::byte> bytes, const std::string& name_for_errors, ErrorKind kind) {
  const Lock lock;
  auto impl = std::make_unique<Impl>(Impl{Checker(kind, name_for_errors), {}});
  const Handle access = access_properties(impl->checker);
  impl->checker.check(H5Pset_fapl_core(access, 1, 0), "set up", "");
  impl->checker.check(H5Pset_file_image(access, bytes.data(), bytes.size()), "load", "");
  const std::string name = hdf5::new_image_name();
  impl->file = impl->checker.handle(H5Fopen(name.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "open as HDF5", "");
  return Hdf5Reader(std::move(impl));
}

Hdf5Reader Hdf5Reader::open_file(const std::filesystem::path& path, ErrorKind kind) {
  const Lock lock;
  auto impl = std::make_unique<Impl>(Impl{Checker(kind, path.string()), {}});
  const Handle access = access_properties(impl->checker);
  // Locks are off: many network file systems have none, and nobody writes to a finished file.
  impl->checker.check(H5Pset_file_locking(access, false, true), "set up", "");
  impl->file = impl->checker.handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "open as HDF5", "");
  return Hdf5Reader(std::move(impl));
}

bool Hdf5Reader::has(const std::string& path) const {
  const Lock lock;
  return hdf5::exists(impl_->checker, impl_->file, path);
}

std::vector<std::string> Hdf5Reader::list(const std::string& group) const {
  const Lock lock;
  const Handle opened =
      impl_->checker.handle(H5Gopen2(impl_->file, group.c_str(), H5P_DEFAULT), H5Gclose, "open group", group);
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* data) -> herr_t {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
    return 0;
  };
  impl_->checker.check(H5Literate(opened, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add, &names), "list", group);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Hdf5Reader::attributes(const std::string& path) const {
  const Lock lock;
  const Handle object = impl_->checker.handle(H5Oopen(impl_->file, path.c_str(), H5P_DEFAULT), H5Oclose, "open", path);
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5A_info_t*, void* data) -> herr_t {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
    return 0;
  };
  impl_->checker.check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add, &names), "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

DatasetInfo Hdf5Reader::info(const std::string& path) const {
  const Lock lock;
  return impl_->info(impl_->dataset(path), path);
}

Tensor Hdf5Reader::get(const std::string& path) const {
  const Lock lock;
  const Impl::Opened opened = impl_->dataset(path);
  const auto [dtype, shape] = impl_->info(opened, path);
  // The type in the file may be narrower than that in memory.
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) impl_->checker.wrong(path, "is damaged");
  }
  impl_->require_stored(opened, elements, path);
  Tensor tensor = Tensor::empty(shape, dtype);
  if (tensor.numel() > 0) {
    impl_->checker.check(H5Dread(opened.object, hdf5::memory_type(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.raw()),
                         "read", path);
  }
  return tensor;
}

std::string Hdf5Reader::get_text(const std::string& path) const {
  std::vector<std::string> texts = get_texts(path);
  if (texts.size() != 1) impl_->checker.wrong(path, fmt::format("holds {} texts instead of one", texts.size()));
  return std::move(texts.front());
}

std::vector<std::string> Hdf5Reader::get_texts(const std::string& path) const {
  const Lock lock;
  const Impl::Opened opened = impl_->dataset(path);
  impl_->require_stored(opened, H5Sget_simple_extent_npoints(opened.space), path);
  return read_texts(impl_->checker, opened.type, opened.space, path, [&](hid_t type, void* buffer) {
    return H5Dread(opened.object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer);
  });
}

bool Hdf5Reader::has_attribute(const std::string& path, const std::string& name) const {
  const Lock lock;
  return has(path) && impl_->checker.check(H5Aexists_by_name(impl_->file, path.c_str(), name.c_str(), H5P_DEFAULT),
                                           "look up attributes of", path) > 0;
}

int64_t Hdf5Reader::attribute_int(const std::string& path, const std::string& name) const {
  const Lock lock;
  int64_t value = 0;
  impl_->read_number(path, name, false, H5T_NATIVE_INT64, &value);
  return value;
}

double Hdf5Reader::attribute_double(const std::string& path, const std::string& name) const {
  const Lock lock;
  double value = 0;
  impl_->read_number(path, name, true, H5T_NATIVE_DOUBLE, &value);
  return value;
}

std::string Hdf5Reader::attribute_text(const std::string& path, const std::string& name) const {
  const Lock lock;
  const std::string label = Impl::label(path, name);
  std::vector<std::string> texts = impl_->attribute_texts(impl_->attribute(path, name), label);
  if (texts.size() != 1) impl_->checker.wrong(label, "is not a single text");
  return std::move(texts.front());
}

bool Hdf5Reader::attribute_is_text(const std::string& path, const std::string& name) const {
  const Lock lock;
  return H5Tget_class(impl_->attribute(path, name).type) == H5T_STRING;
}

int64_t Hdf5Reader::contiguous_offset(const std::string& path) const {
  const Lock lock;
  const Impl::Opened opened = impl_->dataset(path);
  const Handle properties =
      impl_->checker.handle(H5Dget_create_plist(opened.object), H5Pclose, "read the layout of", path);
  const haddr_t offset = H5Dget_offset(opened.object);
  if (H5Pget_layout(properties) != H5D_CONTIGUOUS || offset == HADDR_UNDEF) {
    impl_->checker.wrong(path, "is not stored in one piece and cannot be mapped");
  }
  return static_cast<int64_t>(offset);
}

}  // namespace quire
