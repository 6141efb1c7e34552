#include "core/files/hdf5_handle.h"

#include <unistd.h>

#include <new>

#include "core/check.h"

namespace quire::hdf5 {

namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// Returns the innermost entry of the error stack. For a failed system call only the operating system's words are kept.
std::string innermost_reason() {
  std::string reason;
  const auto first = [](unsigned, const H5E_error2_t* entry, void* data) -> herr_t {
    *static_cast<std::string*>(data) = entry->desc == nullptr ? "" : entry->desc;
    return 1;  // stop
  };
  if (H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &reason) < 0) return "unknown reason";
  const std::string mark = "error message = '";
  const size_t begin = reason.find(mark);
  if (begin != std::string::npos) {
    const size_t end = reason.find('\'', begin + mark.size());
    return reason.substr(begin + mark.size(), end - begin - mark.size());
  }
  return reason.empty() ? "unknown reason" : reason;
}

}  // namespace

Lock::Lock() : lock_(library_mutex()) {
  static bool started = false;
  if (!started) {
    // This must come before any other call. It fails only when called a second time, which does no harm.
    (void)H5dont_atexit();
    started = true;
  }
  if (H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) < 0) fail(ErrorKind::internal, "hdf5: the library does not start");
}

void Lock::begin_anew_in_child() {
  new (&library_mutex()) std::recursive_mutex;
}

void Checker::failed(const char* action, const std::string& path) const {
  const std::string reason = innermost_reason();
  if (path.empty()) fail(kind_, "{}: cannot {}: {}", file_, action, reason);
  fail(kind_, "{}: cannot {} {}: {}", file_, action, path, reason);
}

void Checker::wrong(const std::string& path, const std::string& what) const {
  fail(kind_, "{}: {} {}", file_, path, what);
}

hid_t file_type(DType type) {
  switch (type) {
    case DType::f64:
      return H5T_IEEE_F64LE;
    case DType::f32:
      return H5T_IEEE_F32LE;
    case DType::i64:
      return H5T_STD_I64LE;
    case DType::i32:
      return H5T_STD_I32LE;
    case DType::bf16:
    case DType::u16:
      return H5T_STD_U16LE;
    case DType::i8:
      return H5T_STD_I8LE;
    case DType::f8:
    case DType::u8:
      return H5T_STD_U8LE;
  }
  fail(ErrorKind::internal, "hdf5: no file type for dtype {}", static_cast<int>(type));
}

hid_t memory_type(DType type) {
  switch (type) {
    case DType::f64:
      return H5T_NATIVE_DOUBLE;
    case DType::f32:
      return H5T_NATIVE_FLOAT;
    case DType::i64:
      return H5T_NATIVE_INT64;
    case DType::i32:
      return H5T_NATIVE_INT32;
    case DType::bf16:
    case DType::u16:
      return H5T_NATIVE_UINT16;
    case DType::i8:
      return H5T_NATIVE_INT8;
    case DType::f8:
    case DType::u8:
      return H5T_NATIVE_UINT8;
  }
  fail(ErrorKind::internal, "hdf5: no memory type for dtype {}", static_cast<int>(type));
}

std::string new_image_name() {
  static int64_t images = 0;  // under the lock
  return fmt::format("quire-image-{}-{}", ::getpid(), images++);
}

bool exists(const Checker& checker, hid_t file, const std::string& path) {
  // H5Lexists fails, instead of returning no, when a group on the way is missing.
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (checker.check(H5Lexists(file, parent.c_str(), H5P_DEFAULT), "look up", parent) == 0) return false;
  }
  if (path == "/") return true;
  return checker.check(H5Lexists(file, path.c_str(), H5P_DEFAULT), "look up", path) > 0 &&
         H5Oexists_by_name(file, path.c_str(), H5P_DEFAULT) > 0;
}

Handle text_type(const Checker& checker) {
  Handle type = checker.handle(H5Tcopy(H5T_C_S1), H5Tclose, "make a string type", "");
  checker.check(H5Tset_size(type, H5T_VARIABLE), "make a string type", "");
  checker.check(H5Tset_cset(type, H5T_CSET_UTF8), "make a string type", "");
  return type;
}

}  // namespace quire::hdf5
