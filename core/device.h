// The place of a tensor, and the interface that a device library implements.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/allocator.h"

namespace quire {

class Collectives;
class Ranks;

// meta counts bytes and computes nothing. It serves planning without a GPU and checks of paper-scale configurations.
enum class DeviceKind : uint8_t { cpu, cuda, meta };
inline constexpr int kDeviceKinds = 3;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

inline constexpr Device kCpu{DeviceKind::cpu, 0};
inline constexpr Device kMeta{DeviceKind::meta, 0};

const char* name_of(DeviceKind kind);

// Thrown when a call of a device library fails. Op adds the operation and the shapes (kernels/op.h).
class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& message) : std::runtime_error(message) {}
  ~DeviceError() override;  // out of line, as the destructor of Error is
};

// Memory and copies of one kind of device. The kernels themselves are bound to op slots by the backend's
// registration function (kernels/backend.h).
class DeviceBackend {
 public:
  virtual ~DeviceBackend();
  virtual std::string name() const = 0;  // e.g. "cpu"
  virtual Allocator& allocator() = 0;
  // Returns true when calls return before the device has done the work; reading a result then waits for all of it.
  virtual bool is_asynchronous() const { return false; }
  struct Memory {
    int64_t total = 0;
    int64_t free = 0;  // bytes that this process could still allocate
  };
  virtual Memory memory() const = 0;
  // Tensors made from host values take memory from upload_allocator(). No queued kernel uses that memory, so the copy
  // need not wait for earlier kernels.
  virtual Allocator& upload_allocator() { return allocator(); }
  virtual void upload_new(void* device, const void* host, size_t bytes) { copy_from_host(device, host, bytes); }
  // Allocates host memory that the device's kernels read and write directly.
  virtual Allocator& host_allocator() { return allocator(); }
  // Copies from memory of host_allocator(). A copy begins when all earlier queued work is done and runs beside work
  // that is queued afterwards; work queued after await_fetched() finds the copies finished.
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  virtual void fetch(const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) copy_within(copy.to, copy.from, copy.bytes);
  }
  virtual void await_fetched() {}
  virtual void copy_to_host(void* host, const void* device, size_t bytes) = 0;
  virtual void copy_from_host(void* device, const void* host, size_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, size_t bytes) = 0;
  virtual void zero(void* device, size_t bytes) = 0;
  virtual void synchronize() = 0;
  // Collectives for tensors on this device between several ranks, each with a device of its own; all ranks call it. An
  // error is one of all ranks. nullptr: tensors of the host, which the ranks have collectives for.
  virtual std::unique_ptr<Collectives> connect(Ranks& ranks);
};

// Throws Error(config) when no library for the device has been loaded. cpu and meta memory are built in.
DeviceBackend& device_backend(DeviceKind kind);
void register_device_backend(DeviceKind kind, std::unique_ptr<DeviceBackend> backend);
bool has_device_backend(DeviceKind kind);

}  // namespace quire
