// HDF5 through memory images: files are written by us (so a full disk is our error and every file has a checksum) and
// are read only after their checksum was verified. Thread-safe by one global lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace quire {

// Builds a file in memory. Paths use '/', groups are made as needed; dotted parameter names are plain dataset names.
class Hdf5Writer {
 public:
  Hdf5Writer();
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  void put(const std::string& path, const Tensor& tensor);  // any dtype; bf16 as u16 with attribute "dtype"
  void put_text(const std::string& path, const std::string& text);
  void put_texts(const std::string& path, const std::vector<std::string>& texts);
  void set_attribute(const std::string& path, const std::string& name, int64_t value);  // path "/" is the root
  void set_attribute(const std::string& path, const std::string& name, const std::string& value);
  // Closes the file and returns its bytes. Nothing can be added afterwards.
  std::vector<std::byte> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads an image whose checksum the caller has verified. Errors are Error(kind given to open) naming the dataset.
class Hdf5Reader {
 public:
  static Hdf5Reader open_image(std::vector<std::byte> bytes, const std::string& name_for_errors);
  static Hdf5Reader open_file(const std::filesystem::path& path);  // for test data and the corpus header
  Hdf5Reader(Hdf5Reader&&) noexcept;
  Hdf5Reader& operator=(Hdf5Reader&&) noexcept;
  ~Hdf5Reader();

  bool has(const std::string& path) const;
  std::vector<std::string> list(const std::string& group) const;        // names inside a group, sorted
  std::vector<std::string> attributes(const std::string& path) const;  // names, sorted
  Tensor get(const std::string& path) const;                            // on the CPU
  std::string get_text(const std::string& path) const;
  std::vector<std::string> get_texts(const std::string& path) const;
  int64_t attribute_int(const std::string& path, const std::string& name) const;      // integers of any width
  double attribute_double(const std::string& path, const std::string& name) const;    // floats and integers
  std::string attribute_text(const std::string& path, const std::string& name) const;
  bool attribute_is_text(const std::string& path, const std::string& name) const;
  // Byte offset in the file of a contiguous dataset, for memory mapping.
  int64_t contiguous_offset(const std::string& path) const;

 private:
  struct Impl;
  explicit Hdf5Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
