// HDF5 files. Small ones (checkpoints) are built and read as memory images, which quire writes to disk by itself: it
// can then detect a full disk, and every file has a checksum. A corpus is too large for that, so HDF5 writes it in
// pieces. Files are read only after their checksum was verified, because HDF5 crashes on some damaged files.
// Thread-safe by one global lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace quire {

// The first bytes of every HDF5 file.
inline constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

// Builds a file in memory or on disk. Paths use '/', groups are made as needed; dotted parameter names are plain
// dataset names. The bytes depend only on the values and their order (no times are stored).
class Hdf5Writer {
 public:
  Hdf5Writer();                                            // in memory: finish() returns the bytes
  explicit Hdf5Writer(const std::filesystem::path& path);  // on disk: ends with close(); failures are Error(disk)
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // Writes a contiguous CPU tensor of any dtype; bf16 is stored as u16 and f8 as u8, with attribute "dtype".
  void put(const std::string& path, const Tensor& tensor);
  // Writes a contiguous dataset of `count` elements in pieces: fill() must fill the whole buffer each time.
  void put_stream(const std::string& path, DType dtype, int64_t count,
                  const std::function<void(std::span<std::byte>)>& fill);
  // Writes a contiguous tensor in pieces of whole rows: fill(begin, buffer) must fill the buffer with the values from
  // element `begin` on, in the order of the tensor.
  using FillPiece = std::function<void(int64_t begin, std::span<std::byte> buffer)>;
  void put_in_pieces(const std::string& path, DType dtype, const Shape& shape, const FillPiece& fill);
  // Write texts, which are UTF-8 without NUL characters.
  void put_text(const std::string& path, const std::string& text);
  void put_texts(const std::string& path, const std::vector<std::string>& texts);
  // Sets an attribute of the object at the path, which is made a group when it does not exist; "/" is the root.
  void set_attribute(const std::string& path, const std::string& name, int64_t value);
  void set_attribute(const std::string& path, const std::string& name, const std::string& value);
  // Each of these ends the file. Nothing can be added afterwards.
  std::vector<std::byte> finish();
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct DatasetInfo {
  DType dtype;
  Shape shape;
};

// Reads a file whose checksum the caller has verified, written by quire or by h5py. Errors have the kind given to open
// and name the file and the dataset.
class Hdf5Reader {
 public:
  static Hdf5Reader open_image(std::vector<std::byte> bytes, const std::string& name_for_errors,
                               ErrorKind kind = ErrorKind::data);
  static Hdf5Reader open_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::data);
  Hdf5Reader(Hdf5Reader&&) noexcept;
  Hdf5Reader& operator=(Hdf5Reader&&) noexcept;
  ~Hdf5Reader();

  bool has(const std::string& path) const;
  std::vector<std::string> list(const std::string& group) const;       // names inside a group, sorted
  std::vector<std::string> attributes(const std::string& path) const;  // names, sorted
  DatasetInfo info(const std::string& path) const;                     // shape and type that get() would return
  // Returns a CPU tensor. Element types that Tensor lacks are widened: f16 to f32, i16 to i32, u32 and u64 to i64.
  Tensor get(const std::string& path) const;
  std::string get_text(const std::string& path) const;
  std::vector<std::string> get_texts(const std::string& path) const;
  bool has_attribute(const std::string& path, const std::string& name) const;
  int64_t attribute_int(const std::string& path, const std::string& name) const;    // integers of any width
  double attribute_double(const std::string& path, const std::string& name) const;  // floats and integers
  std::string attribute_text(const std::string& path, const std::string& name) const;
  bool attribute_is_text(const std::string& path, const std::string& name) const;
  // Returns the byte offset of a contiguous dataset in the file, for memory mapping.
  int64_t contiguous_offset(const std::string& path) const;

 private:
  struct Impl;
  explicit Hdf5Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
