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
  // Returns the kernel variants that this process has chosen so far. Checkpoints keep this text, so that a resumed run
  // uses the same variants and gets the same bits. Empty when there is no choice.
  virtual std::string kernel_choices() const { return ""; }
  // Applies saved choices. Returns false when they belong to another device or library version; the run then chooses
  // again.
  virtual bool use_kernel_choices(const std::string& choices) { return choices.empty(); }
  // Runs the work and chooses by measured time among the variants of each kernel that occurs in it; earlier choices are
  // dropped. Returns lines for the log. A device without variants does nothing.
  virtual std::vector<std::string> measure_kernels(const std::function<void()>&) { return {}; }
  // Switches graphs on or off. With graphs, calls are collected and replayed as graphs; without, each call is launched
  // by itself. The results are the same. Returns false when the device has no graphs. Throws DeviceError when one of
  // the collected calls fails.
  virtual bool use_graphs(bool) { return false; }
  // Launches the calls that were collected. Reading a result and synchronize() do so, too. Throws DeviceError.
  virtual void submit() {}
  // Numbers of collected calls since the process began.
  struct CallCounts {
    int64_t calls = 0;
    int64_t in_graphs = 0;  // calls that a graph made
    int64_t changed = 0;    // kernels in graphs whose parameters were updated
    int64_t spans = 0;      // groups of calls that were launched together
    int64_t graphs = 0;     // graphs that exist now
  };
  virtual CallCounts call_counts() const { return {}; }
  // Returns collectives for tensors on this device between several ranks, each with its own device. All ranks call it,
  // and an error on one rank is thrown on all. nullptr means that tensors lie in host memory, for which the ranks have
  // collectives already.
  virtual std::unique_ptr<Collectives> connect(Ranks& ranks);
};

// Throws Error(config) when no library for the device has been loaded. cpu and meta memory are built in.
DeviceBackend& device_backend(DeviceKind kind);
void register_device_backend(DeviceKind kind, std::unique_ptr<DeviceBackend> backend);
bool has_device_backend(DeviceKind kind);

}  // namespace quire
