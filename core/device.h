// Where a tensor lives, and the interface a device library implements.
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

// meta counts bytes and computes nothing: planning without a GPU and checks of paper-scale configurations.
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

// A call of a device library that failed. Op adds which operation it was and the shapes (kernels/op.h).
class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& message) : std::runtime_error(message) {}
  ~DeviceError() override;  // out of line, as that of Error
};

// Memory and copies of one kind of device. The kernels themselves are bound to op slots by the backend's
// registration function (kernels/backend.h).
class DeviceBackend {
 public:
  virtual ~DeviceBackend();
  virtual std::string name() const = 0;  // e.g. "cpu"
  virtual Allocator& allocator() = 0;
  // True when calls return before the device has done the work; reading a result then waits for all of it.
  virtual bool is_asynchronous() const { return false; }
  struct Memory {
    int64_t total = 0;
    int64_t free = 0;  // what this process could still get
  };
  virtual Memory memory() const = 0;
  // Tensors made from host values take memory from upload_allocator(), which no kernel still uses, so that their copy
  // need not wait for earlier kernels.
  virtual Allocator& upload_allocator() { return allocator(); }
  virtual void upload_new(void* device, const void* host, size_t bytes) { copy_from_host(device, host, bytes); }
  // Memory of the host that the device's kernels read and write where it is.
  virtual Allocator& host_allocator() { return allocator(); }
  // Copies from the memory of host_allocator(). They begin when what is queued is done, and go on beside what is queued
  // afterwards; what is queued after await_fetched() finds them made.
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
  // Which variants of kernels this process has chosen so far. Checkpoints keep this text, so that a resumed run uses
  // the same variants and gets the same bits. Empty when there is no choice.
  virtual std::string kernel_choices() const { return ""; }
  // Returns false when the choices belong to another device or library version; the run then chooses again.
  virtual bool use_kernel_choices(const std::string& choices) { return choices.empty(); }
  // Runs the work, and chooses by time among the variants of each kernel that occurs in it; choices of before are
  // forgotten. Returns lines for the log. A device without a choice does nothing.
  virtual std::vector<std::string> measure_kernels(const std::function<void()>&) { return {}; }
  // From now on calls are collected and repeated as graphs, or each is made by itself again; results are the same.
  // Returns false when the device has no graphs and makes each call by itself in any case. DeviceError: one of the
  // calls that had been collected fails.
  virtual bool use_graphs(bool) { return false; }
  // Gives the device the calls that have been collected. Reading a result and synchronize() do so, too. DeviceError.
  virtual void submit() {}
  // Counts of calls that were collected since the process began.
  struct CallCounts {
    int64_t calls = 0;
    int64_t in_graphs = 0;  // calls that a graph made
    int64_t changed = 0;    // kernels in graphs whose parameters were set anew
    int64_t spans = 0;      // groups of calls that were given to the device together
    int64_t graphs = 0;     // graphs that exist now
  };
  virtual CallCounts call_counts() const { return {}; }
  // Collectives for tensors on this device between several ranks, each with a device of its own; all ranks call it. An
  // error is one of all ranks. nullptr: tensors of the host, which the ranks have collectives for.
  virtual std::unique_ptr<Collectives> connect(Ranks& ranks);
};

// Throws Error(config) when no library for the device has been loaded. cpu and meta memory are built in.
DeviceBackend& device_backend(DeviceKind kind);
void register_device_backend(DeviceKind kind, std::unique_ptr<DeviceBackend> backend);
bool has_device_backend(DeviceKind kind);

}  // namespace quire
