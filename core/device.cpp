#include "core/device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "core/control_groups.h"

namespace quire {

namespace {

// Returns the number that stands alone in a file, or after a word in it; 0 when there is none.
int64_t number_in(const std::filesystem::path& path, const std::string& word) {
  std::ifstream file(path);
  std::string found;
  while (!word.empty() && file >> found && found != word) {
  }
  int64_t value = 0;
  return file >> value ? value : 0;
}

// Returns the memory of the machine, or of the control group of this process where that is less.
DeviceBackend::Memory host_memory() {
  constexpr int64_t kKibi = 1024;
  DeviceBackend::Memory memory{number_in("/proc/meminfo", "MemTotal:") * kKibi,
                               number_in("/proc/meminfo", "MemAvailable:") * kKibi};
  for (const ControlGroup& group : control_groups("memory")) {
    const bool second = group.version == 2;
    const int64_t limit = number_in(group.folder / (second ? "memory.max" : "memory.limit_in_bytes"), "");
    if (limit <= 0 || limit >= memory.total) continue;
    memory.total = limit;
    const int64_t used = number_in(group.folder / (second ? "memory.current" : "memory.usage_in_bytes"), "");
    memory.free = std::min(memory.free, limit - used);
  }
  return memory;
}

class CpuMemory : public DeviceBackend {
 public:
  std::string name() const override { return "cpu"; }
  Allocator& allocator() override { return allocator_; }
  Memory memory() const override { return host_memory(); }
  void copy_to_host(void* host, const void* device, size_t bytes) override { std::memcpy(host, device, bytes); }
  void copy_from_host(void* device, const void* host, size_t bytes) override { std::memcpy(device, host, bytes); }
  void copy_within(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(void* device, size_t bytes) override { std::memset(device, 0, bytes); }
  void synchronize() override {}

 private:
  CachingAllocator allocator_;
};

class MetaMemory : public DeviceBackend {
 public:
  std::string name() const override { return "meta"; }
  Allocator& allocator() override { return allocator_; }
  Memory memory() const override { return {}; }
  void copy_to_host(void*, const void*, size_t) override {
    fail(ErrorKind::internal, "meta: a tensor without values was read");
  }
  void copy_from_host(void*, const void*, size_t) override {}
  void copy_within(void*, const void*, size_t) override {}
  void zero(void*, size_t) override {}
  void synchronize() override {}

 private:
  CountingAllocator allocator_;
};

using Backends = std::array<std::unique_ptr<DeviceBackend>, kDeviceKinds>;

// Backends are never destroyed, because tensors in other statics may be freed after main.
Backends& backends() {
  static Backends& all = *new Backends{std::make_unique<CpuMemory>(), nullptr, std::make_unique<MetaMemory>()};
  return all;
}

}  // namespace

DeviceError::~DeviceError() = default;
DeviceBackend::~DeviceBackend() = default;

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::meta:
      return "meta";
  }
  return "?";
}

bool has_device_backend(DeviceKind kind) {
  return backends()[static_cast<size_t>(kind)] != nullptr;
}

DeviceBackend& device_backend(DeviceKind kind) {
  const auto& found = backends()[static_cast<size_t>(kind)];
  if (found == nullptr)
    fail(ErrorKind::config, "device {}: no backend library is loaded; use run.device=cpu", name_of(kind));
  return *found;
}

void register_device_backend(DeviceKind kind, std::unique_ptr<DeviceBackend> backend) {
  backends()[static_cast<size_t>(kind)] = std::move(backend);
}

}  // namespace quire
