#include "core/tensor.h"

#include "core/check.h"

namespace quire {

const char* name_of(DType type) {
  switch (type) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u16:
      return "u16";
    case DType::i8:
      return "i8";
    case DType::f8:
      return "f8";
    case DType::u8:
      return "u8";
  }
  return "?";
}

namespace {

Allocator& allocator_of(Device device, bool uploaded) {
  DeviceBackend& backend = device_backend(device.kind);
  return uploaded ? backend.upload_allocator() : backend.allocator();
}

}  // namespace

Storage::Storage(size_t bytes, Device device, bool uploaded)
    : data_(allocator_of(device, uploaded).allocate(bytes)), bytes_(bytes), device_(device), uploaded_(uploaded) {}

Storage::Storage(std::shared_ptr<void> memory, size_t bytes, Device device)
    : data_(memory.get()), bytes_(bytes), device_(device), uploaded_(false), owner_(std::move(memory)) {}

Storage::~Storage() {
  if (owner_) return;
  allocator_of(device_, uploaded_).deallocate(data_, bytes_);
}

// Returns a tensor with everything but the storage.
Tensor Tensor::described(const Shape& shape, DType dtype, Device device) {
  shape.numel();  // refuses what no machine holds, so that strides do not overflow
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.strides_ = shape;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    QUIRE_CHECK(shape[axis] >= 0, "tensor: negative size in {}", shape.to_string());
    tensor.strides_[axis] = stride;
    stride *= shape[axis];
  }
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  return tensor;
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = described(shape, dtype, device);
  tensor.storage_ = std::make_shared<Storage>(static_cast<size_t>(tensor.bytes()), device);
  return tensor;
}

Tensor Tensor::over(std::shared_ptr<void> memory, const Shape& shape, DType dtype, Device device) {
  Tensor tensor = described(shape, dtype, device);
  tensor.storage_ = std::make_shared<Storage>(std::move(memory), static_cast<size_t>(tensor.bytes()), device);
  return tensor;
}

Tensor Tensor::uploaded(const void* values, int64_t count, DType dtype, const Shape& shape, Device device) {
  Tensor tensor = described(shape, dtype, device);
  QUIRE_CHECK(count == tensor.numel(), "tensor: {} values for {}", count, shape.to_string());
  const auto bytes = static_cast<size_t>(tensor.bytes());
  tensor.storage_ = std::make_shared<Storage>(bytes, device, true);
  if (bytes > 0) device_backend(device.kind).upload_new(tensor.storage_->data(), values, bytes);
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  const Tensor tensor = empty(shape, dtype, device);
  tensor.zero();
  return tensor;
}

bool Tensor::is_contiguous() const {
  int64_t stride = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[axis] != stride) return false;
    stride *= shape_[axis];
  }
  return true;
}

void* Tensor::raw() const {
  QUIRE_CHECK(defined(), "tensor: the tensor is undefined");
  return static_cast<char*>(storage_->data()) + offset_ * static_cast<int64_t>(size_of(dtype_));
}

Tensor Tensor::reshape(const Shape& shape) const {
  QUIRE_CHECK(is_contiguous(), "reshape: {} is not contiguous", shape_.to_string());
  QUIRE_CHECK(shape.numel() == numel(), "reshape: {} has not the size of {}", shape_.to_string(), shape.to_string());
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = shape;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    view.strides_[axis] = stride;
    stride *= shape[axis];
  }
  return view;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t end) const {
  QUIRE_CHECK(begin >= 0 && begin <= end && end <= dim(axis), "slice: {}..{} of axis {} in {}", begin, end, axis,
              shape_.to_string());
  Tensor view = *this;
  view.offset_ += begin * strides_[axis];
  view.shape_[axis] = end - begin;
  return view;
}

Tensor Tensor::strided(const Shape& shape, const Shape& strides, int64_t offset) const {
  Tensor view = *this;
  view.offset_ += offset;
  view.shape_ = shape;
  view.strides_ = strides;
  int64_t last = view.offset_;
  for (int axis = 0; axis < shape.rank(); ++axis) last += (shape[axis] - 1) * strides[axis];
  const auto stored = static_cast<int64_t>(storage_->bytes() / size_of(dtype_));
  QUIRE_CHECK(shape.rank() == strides.rank() && offset >= -offset_ && (shape.numel() == 0 || last < stored),
              "strided: {} by {} from element {} does not lie in a storage of {}", shape.to_string(),
              strides.to_string(), view.offset_, stored);
  return view;
}

Tensor Tensor::select(int axis, int64_t index) const {
  const Tensor one = slice(axis, index, index + 1);
  const int dropped = axis < 0 ? axis + rank() : axis;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (int i = 0; i < rank(); ++i) {
    if (i == dropped) continue;
    sizes.push_back(shape_[i]);
    strides.push_back(strides_[i]);
  }
  Tensor view = one;
  view.shape_ = Shape(sizes);
  view.strides_ = Shape(strides);
  return view;
}

Tensor Tensor::transpose(int first, int second) const {
  Tensor view = *this;
  std::swap(view.shape_[first], view.shape_[second]);
  std::swap(view.strides_[first], view.strides_[second]);
  return view;
}

Tensor Tensor::permute(std::span<const int> axes) const {
  QUIRE_CHECK(static_cast<int>(axes.size()) == rank(), "permute: {} axes for {}", axes.size(), shape_.to_string());
  Tensor view = *this;
  std::array<bool, kMaxRank> seen{};
  for (int i = 0; i < rank(); ++i) {
    const int from = axes[static_cast<size_t>(i)];
    QUIRE_CHECK(from >= 0 && from < rank() && !seen[static_cast<size_t>(from)],
                "permute: axis {} twice or outside of {}", from, shape_.to_string());
    seen[static_cast<size_t>(from)] = true;
    view.shape_[i] = shape_[from];
    view.strides_[i] = strides_[from];
  }
  return view;
}

Tensor Tensor::broadcast(const Shape& shape) const {
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = shape;
  const int added = shape.rank() - rank();
  QUIRE_CHECK(added >= 0, "broadcast: {} has more axes than {}", shape_.to_string(), shape.to_string());
  for (int i = 0; i < shape.rank(); ++i) {
    const bool repeated = i < added || (shape_[i - added] == 1 && shape[i] != 1);
    QUIRE_CHECK(repeated || shape_[i - added] == shape[i], "broadcast: {} does not fit {}", shape_.to_string(),
                shape.to_string());
    view.strides_[i] = repeated ? 0 : strides_[i - added];
  }
  return view;
}

void Tensor::copy_from(const Tensor& source) const {
  QUIRE_CHECK(source.numel() == numel() && source.dtype() == dtype_, "copy: {} {} from {} {}", name_of(dtype_),
              shape_.to_string(), name_of(source.dtype()), source.shape().to_string());
  QUIRE_CHECK(is_contiguous() && source.is_contiguous(), "copy: both tensors must be contiguous");
  const Device from = source.device();
  QUIRE_CHECK(device_ == from || device_ == kCpu || from == kCpu, "copy: from {} to {}; one must be on the host",
              name_of(from.kind), name_of(device_.kind));
  if (numel() == 0) return;
  if (device_ == from) {
    device_backend(device_.kind).copy_within(raw(), source.raw(), static_cast<size_t>(bytes()));
  } else if (from == kCpu) {
    upload(source.raw(), numel());
  } else {
    source.download(raw());
  }
}

Tensor Tensor::to(Device device) const {
  if (!defined() || device_ == device) return *this;
  const Tensor copy = empty(shape_, dtype_, device);
  copy.copy_from(*this);
  return copy;
}

void Tensor::zero() const {
  QUIRE_CHECK(is_contiguous(), "zero: {} is not contiguous", shape_.to_string());
  if (numel() > 0) device_backend(device_.kind).zero(raw(), static_cast<size_t>(bytes()));
}

void Tensor::upload(const void* host, int64_t count) const {
  QUIRE_CHECK(count == numel() && is_contiguous(), "upload: {} values into {}", count, shape_.to_string());
  if (count > 0) device_backend(device_.kind).copy_from_host(raw(), host, static_cast<size_t>(bytes()));
}

void Tensor::download(void* host) const {
  QUIRE_CHECK(is_contiguous(), "download: {} is not contiguous", shape_.to_string());
  if (numel() > 0) device_backend(device_.kind).copy_to_host(host, raw(), static_cast<size_t>(bytes()));
}

void Tensor::check_dtype(DType expected) const {
  QUIRE_CHECK(dtype_ == expected, "tensor: elements are {}, not {}", name_of(dtype_), name_of(expected));
}

}  // namespace quire
