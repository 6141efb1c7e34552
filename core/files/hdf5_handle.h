// The parts that the HDF5 reader and writer share: the lock, handles that close themselves, checked calls, element
// types. Included by core/files/hdf5_*.cpp only.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

#include "core/dtype.h"
#include "core/error.h"

namespace quire::hdf5 {

// Every sequence of HDF5 calls runs under this lock, because Debian builds the library without thread safety. The first
// lock also tells HDF5 not to flush at exit (after a failed write that crashes the process) and not to print errors
// (quire reports them).
class Lock {
 public:
  Lock();
  // Makes a new lock in a child that was forked under the lock: the thread of the parent that holds the old one does
  // not exist there.
  static void begin_anew_in_child();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() { close(); }
  operator hid_t() const { return id_; }
  // Returns false when HDF5 could not close the object; for a file this means that a write has failed.
  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// Turns a failed call into an Error that names the file, the object and HDF5's own innermost reason.
class Checker {
 public:
  Checker(ErrorKind kind, std::string file) : kind_(kind), file_(std::move(file)) {}
  Handle handle(hid_t id, Handle::Close close, const char* action, const std::string& path) const {
    check(id, action, path);
    return {id, close};
  }
  // Throws when `value` is negative, which is how every HDF5 call reports a failure.
  template <typename Value>
  Value check(Value value, const char* action, const std::string& path) const {
    if (value < 0) failed(action, path);
    return value;
  }
  [[noreturn]] void failed(const char* action, const std::string& path) const;
  [[noreturn]] void wrong(const std::string& path, const std::string& what) const;

 private:
  ErrorKind kind_;
  std::string file_;
};

hid_t file_type(DType type);    // little endian; bf16 as u16, f8 as u8
hid_t memory_type(DType type);  // byte order of this machine
// Returns a new name for a file in memory: HDF5 takes two files with the same name for one.
std::string new_image_name();
// Returns whether there is an object at the path; false also when a group on the way is missing.
bool exists(const Checker& checker, hid_t file, const std::string& path);
// Returns the type of a variable-length UTF-8 string.
Handle text_type(const Checker& checker);

}  // namespace quire::hdf5
