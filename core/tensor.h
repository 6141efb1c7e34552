// Tensor: a value handle on shared storage. It makes views; it does no arithmetic.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace quire {

// A block of bytes. It goes back to its allocator when the last tensor that views it is destroyed.
class Storage {
 public:
  Storage(size_t bytes, Device device, bool uploaded = false);
  // A view of memory that belongs to `owner`, which lives as long as a tensor views it.
  Storage(std::shared_ptr<void> memory, size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void* data_;
  size_t bytes_;
  Device device_;
  bool uploaded_;  // from the upload allocator
  std::shared_ptr<void> owner_;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; optional arguments use it
  static Tensor empty(const Shape& shape, DType dtype, Device device = kCpu);
  static Tensor zeros(const Shape& shape, DType dtype, Device device = kCpu);
  // Returns a tensor over memory that kernels of the device can read and write: pinned memory of the host, a mapped
  // file.
  static Tensor over(std::shared_ptr<void> memory, const Shape& shape, DType dtype, Device device);
  // Returns a contiguous tensor with the shape, element type and device of another; values are not copied.
  static Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }
  template <typename T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = kCpu) {
    return uploaded(values.data(), static_cast<int64_t>(values.size()), dtype_of<T>(), shape, device);
  }
  template <typename T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = kCpu) {
    return from(std::span<const T>(values), shape, device);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_[axis]; }
  int rank() const { return shape_.rank(); }
  int64_t stride(int axis) const { return strides_[axis]; }  // in elements
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * static_cast<int64_t>(size_of(dtype_)); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool is_contiguous() const;
  // Returns the number of handles on the storage, this one included. A gradient with other handles is not changed in
  // place.
  int64_t use_count() const { return storage_.use_count(); }
  bool is_meta() const { return device_.kind == DeviceKind::meta; }

  void* raw() const;
  // Throws when T is not the element type. The storage is shared: const is about the handle, not the values.
  template <typename T>
  T* data() const {
    check_dtype(dtype_of<T>());
    return static_cast<T*>(raw());
  }

  // Views. All check bounds; none copies.
  Tensor reshape(const Shape& shape) const;  // contiguous tensors only
  Tensor slice(int axis, int64_t begin, int64_t end) const;
  Tensor select(int axis, int64_t index) const;  // drops the axis
  Tensor transpose(int first, int second) const;
  Tensor permute(std::span<const int> axes) const;  // axis i of the view is axis axes[i] of this tensor
  // Returns any view of the same storage: its first element lies `offset` elements behind this tensor's.
  Tensor strided(const Shape& shape, const Shape& strides, int64_t offset) const;
  // Returns the values repeated along axes of size 1 and along new axes in front (strides of 0), as NumPy broadcasts.
  Tensor broadcast(const Shape& shape) const;

  // Copies between contiguous tensors of equal size, on one device or one of them on the host.
  void copy_from(const Tensor& source) const;
  // Returns this tensor, or a copy on another device; one of the two devices must be the host.
  Tensor to(Device device) const;
  void zero() const;
  template <typename T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<size_t>(numel()));
    check_dtype(dtype_of<T>());
    download(values.data());
    return values;
  }
  void upload(const void* host, int64_t count) const;
  void download(void* host) const;

 private:
  void check_dtype(DType expected) const;
  static Tensor described(const Shape& shape, DType dtype, Device device);
  static Tensor uploaded(const void* values, int64_t count, DType dtype, const Shape& shape, Device device);

  std::shared_ptr<Storage> storage_;
  Shape shape_;
  Shape strides_;
  int64_t offset_ = 0;  // in elements
  DType dtype_ = DType::f32;
  Device device_ = kCpu;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace quire
